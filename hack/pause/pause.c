/* Holds namespaces open: PID 1 of a pod's sandbox, and of the node. Reaps what is left to it. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void quit(int number) {
  (void)number;
  _exit(0);
}

static void reap(int number) {
  (void)number;
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
}

int main(void) {
  signal(SIGINT, quit);
  signal(SIGTERM, quit);
  signal(SIGCHLD, reap);
  for (;;) pause();
}
