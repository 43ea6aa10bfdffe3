// executions WAY VARIABLE: executes itself with the variable added to the environment, in each way that libc has.
// As `executions true` it prints whether the preload library is loaded.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

static const char* path;

static int run_shell(const char* way, const char* variable) {
  char command[1024];
  // The shell is executed without the variable, what it executes with it.
  snprintf(command, sizeof command, "%s %s true", variable, path);
  if (strcmp(way, "system") == 0) return system(command);
  FILE* out = popen(command, "r");
  char line[64] = "";
  if (out && fgets(line, sizeof line, out)) printf("%s", line);
  return pclose(out);
}

static int spawn(const char* way, char** arguments) {
  pid_t child;
  int error = strcmp(way, "posix_spawn") == 0 ? posix_spawn(&child, path, NULL, NULL, arguments, environ)
                                              : posix_spawnp(&child, path, NULL, NULL, arguments, environ);
  int status = 1;
  return error || waitpid(child, &status, 0) != child ? 1 : status;
}

static int execute_in_vfork(char** arguments) {
  pid_t child = vfork();
  if (child == 0) {
    execve(path, arguments, environ);
    _exit(1);
  }
  int status = 1;
  return waitpid(child, &status, 0) != child ? 1 : status;
}

static void execute(const char* way, char** arguments) {
  if (strcmp(way, "execve") == 0) execve(path, arguments, environ);
  if (strcmp(way, "execv") == 0) execv(path, arguments);
  if (strcmp(way, "execvp") == 0) execvp(path, arguments);
  if (strcmp(way, "execvpe") == 0) execvpe(path, arguments, environ);
  if (strcmp(way, "execl") == 0) execl(path, path, "true", NULL);
  if (strcmp(way, "execlp") == 0) execlp(path, path, "true", NULL);
  if (strcmp(way, "execle") == 0) execle(path, path, "true", NULL, environ);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (strcmp(way, "fexecve") == 0) fexecve(file, arguments, environ);
  if (strcmp(way, "execveat") == 0) execveat(file, "", arguments, environ, AT_EMPTY_PATH);
}

int main(int count, char** arguments) {
  path = arguments[0];
  const char* way = count > 1 ? arguments[1] : "";
  if (strcmp(way, "true") == 0)
    return printf("true %s\n", dlsym(RTLD_DEFAULT, "farside_get_stats") ? "far" : "near") < 0;
  if (count < 3) return 2;
  if (strcmp(way, "system") == 0 || strcmp(way, "popen") == 0) return run_shell(way, arguments[2]);
  putenv(arguments[2]);
  char* next[] = {arguments[0], "true", NULL};
  if (strncmp(way, "posix_spawn", 11) == 0) return spawn(way, next);
  if (strcmp(way, "vfork") == 0) return execute_in_vfork(next);
  execute(way, next);
  perror(way);
  return 1;
}
