/* The floor of dispatch: nothing but posix_spawn and wait, K in flight. floor N K PROGRAM */
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char **environ;

int main(int argc, char **argv) {
    int total = atoi(argv[1]), slots = atoi(argv[2]), running = 0, started = 0, done = 0, status;
    char *words[] = {argv[3], NULL};
    (void)argc;
    while (done < total) {
        for (; running < slots && started < total; running++, started++) {
            pid_t pid;
            if (posix_spawn(&pid, argv[3], NULL, NULL, words, environ) != 0) return 1;
        }
        if (wait(&status) < 0) return 1;
        running--;
        done++;
    }
    return 0;
}
