# cmake -DINPUT=file -DNAME=name -DOUTPUT=file.c -P embed.cmake: writes INPUT as a C array prelude_NAME.
# (C17 has no #embed, and -Wpedantic refuses string literals over 4,095 characters.)
file(READ ${INPUT} hex HEX)
string(REGEX MATCHALL "[0-9a-f][0-9a-f]" bytes "${hex}")
foreach(byte IN LISTS bytes)
    if(byte MATCHES "^([89a-f].|00)$")
        message(FATAL_ERROR "${INPUT}: found byte 0x${byte}, expected ASCII only")
    endif()
endforeach()
list(JOIN bytes ", 0x" body)
string(REGEX REPLACE "(0x0a, )" "\\1\n" body "0x${body}, ")
if(hex STREQUAL "")
    set(body "")
endif()
file(WRITE ${OUTPUT} "/* Generated from ${NAME} by cmake/embed.cmake. */
#include \"prelude_text.h\"

const char prelude_${NAME}[] = {
${body}0};
")
