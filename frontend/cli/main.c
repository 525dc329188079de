/* atoll: finds the subcommand, reads its options by its table, runs it, turns a status into an exit
 * code and one line. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct command *const commands[] = {
#define X(name) &command_##name,
#include "commands.def"
#undef X
};

static int exit_code(status code)
{
    switch (code) {
    case ATOLL_OK:
        return 0;
    case ATOLL_CHECK_FAILED:
        return EXIT_CHECK;
    case ATOLL_USAGE:
        return EXIT_USAGE;
    case ATOLL_IO:
    case ATOLL_COMPILER:
    case ATOLL_UNSUPPORTED:
    case ATOLL_OUT_OF_MEMORY:
    case ATOLL_INTERNAL:
    case ATOLL_DEVICE:
        return EXIT_ENVIRONMENT;
    default:
        return EXIT_INPUT;
    }
}

static void print_help(void)
{
    printf("atoll %s - a graph compiler for training graphs\n\nusage: atoll COMMAND [options]; "
           "atoll COMMAND --help\n\n",
           ATOLL_VERSION_TEXT);
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        printf("  %-9s %s\n", commands[i]->name, commands[i]->doc);
    }
    printf("\nexit codes: 0 ok, 1 a check failed, 2 usage, 3 bad input, 4 environment; "
           "ATOLL_HELP=1 lists environment variables\n");
}

static void print_command_help(const struct command *c)
{
    printf("usage: atoll %s %s\n\n%s\n\n", c->name, c->usage, c->doc);
    for (uint32_t i = 0; i < c->n_options; i++) {
        char head[64];
        snprintf(head, sizeof head, "--%s%s%s", c->options[i].name,
                 c->options[i].value != NULL ? " " : "",
                 c->options[i].value != NULL ? c->options[i].value : "");
        printf("  %-24s %s\n", head, c->options[i].doc);
    }
    printf("\nexamples:\n%s", c->examples);
}

static status read_option(const struct command *c, struct arguments *out, int argc, char **argv,
                          int *at, struct error *e)
{
    const char *given = strcmp(argv[*at], "-o") == 0 ? "--output" : argv[*at];
    const char *text = given[1] == '-' ? given + 2 : "", *equals = strchr(text, '=');
    size_t length = equals != NULL ? (size_t)(equals - text) : strlen(text);
    for (uint32_t i = 0; i < c->n_options; i++) {
        if (strlen(c->options[i].name) != length || memcmp(c->options[i].name, text, length) != 0) {
            continue;
        }
        if (out->values[i] != NULL && strcmp(c->options[i].name, "target") != 0) {
            return fail(e, ATOLL_USAGE, "--%s is given twice", c->options[i].name);
        }
        if (c->options[i].value == NULL) {
            if (equals != NULL) {
                return fail(e, ATOLL_USAGE, "--%s takes no value", c->options[i].name);
            }
            out->values[i] = "";
        } else if (equals != NULL) {
            out->values[i] = equals + 1;
        } else if (*at + 1 < argc) {
            out->values[i] = argv[++*at];
        } else {
            return fail(e, ATOLL_USAGE, "--%s needs a value: %s", c->options[i].name,
                        c->options[i].value);
        }
        if (out->n_given < ARRAY_LEN(out->given)) {
            out->given[out->n_given].name = c->options[i].name;
            out->given[out->n_given++].value = out->values[i];
        }
        return ATOLL_OK;
    }
    return fail(e, ATOLL_USAGE, "unknown option %s; hint: atoll %s --help lists them", argv[*at],
                c->name);
}

static status read_arguments(const struct command *c, struct arguments *out, int argc, char **argv,
                             struct error *e)
{
    *out = (struct arguments){.options = c->options, .n_options = c->n_options};
    for (int i = 2; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1] != '\0') {
            TRY(read_option(c, out, argc, argv, &i, e));
        } else if (out->n_positional < ARRAY_LEN(out->positional)) {
            out->positional[out->n_positional++] = argv[i];
        } else {
            return fail(e, ATOLL_USAGE, "too many arguments at '%s'", argv[i]);
        }
    }
    return ATOLL_OK;
}

static status run(const struct command *c, int argc, char **argv, struct context *context,
                  struct error *e)
{
    struct arguments arguments;
    struct recovery r;
    TRY(read_arguments(c, &arguments, argc, argv, e));
    if (arena_recover(&r)) {
        return fail(e, ATOLL_OUT_OF_MEMORY, "out of memory");
    }
    status code = c->run(&arguments, context, e);
    arena_recover_end(&r);
    return code;
}

static void print_line(const char *line)
{
    fprintf(stderr, "atoll: %s\n", line);
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

int main(int argc, char **argv)
{
    struct context context;
    struct error e = {0};
    char help[] = "--help", *helping[] = {argv[0], argc > 2 ? argv[2] : NULL, help, NULL};
    context_read(&context);
    context.print = print_line;
    if (context.help != NULL && strcmp(context.help, "1") == 0) {
        struct arena a = {0};
        struct text t = {.arena = &a};
        context_help(&t);
        fputs(t.data, stdout);
        arena_free(&a);
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "help") == 0) { /* atoll help train */
        argv = helping;
    }
    if (argc < 2 || is_help(argv[1]) || strcmp(argv[1], "help") == 0) {
        print_help();
        return argc < 2 ? EXIT_USAGE : 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("atoll %s\n", ATOLL_VERSION_TEXT);
        return 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        if (strcmp(argv[1], commands[i]->name) != 0) {
            continue;
        }
        for (int k = 2; k < argc; k++) {
            if (is_help(argv[k])) {
                print_command_help(commands[i]);
                return 0;
            }
        }
        status code = run(commands[i], argc, argv, &context, &e);
        if (code != ATOLL_OK) {
            fflush(stdout);
            fprintf(stderr, "atoll %s: %s\n", argv[1], e.text);
        }
        return exit_code(code);
    }
    fprintf(stderr, "atoll: unknown command '%s'; hint: atoll --help lists them\n", argv[1]);
    return EXIT_USAGE;
}
