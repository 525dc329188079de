/* EXPORT marks what the emulator libraries show to the outside; all else is hidden. */
#ifndef ATOLL_EMULATOR_EXPORT_H
#define ATOLL_EMULATOR_EXPORT_H

#define EXPORT __attribute__((visibility("default")))

#endif
