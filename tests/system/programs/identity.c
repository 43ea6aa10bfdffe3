// What a process may do only if it has one thread, and what changes the identity of all its threads: Farside's threads
// must be no obstacle, and follow.
#include <dirent.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "far.h"

static const char* program_path;

// More than is near, so that pages are evicted and fetched. Without /proc/self, which these processes may not read.
static void use_far_memory(uint32_t seed) {
  char* block = malloc(BALLAST);
  CHECK(block);
  fill(block, BALLAST, seed);
  CHECK(filled(block, BALLAST, seed));
  free(block);
}

// In handler mode one thread of Farside's stays, as it was.
static int in_handler_mode(void) {
  char name[32] = "";
  DIR* tasks = opendir("/proc/self/task");
  for (struct dirent* task; tasks && (task = readdir(tasks)) && strcmp(name, "farside-fault\n");) {
    char path[300];
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
    FILE* file = fopen(path, "r");
    if (file && !fgets(name, sizeof name, file)) name[0] = 0;
    if (file) fclose(file);
  }
  if (tasks) closedir(tasks);
  return !strcmp(name, "farside-fault\n");
}

static int ended_with(pid_t child, int status_wanted) {
  int status;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == status_wanted;
}

static void* outlive_main(void* unused) {
  (void)unused;
  usleep(50000);
  use_far_memory(1);
  return NULL;
}

// The process ends with its last thread, which is not the main thread.
static void last_thread(void) {
  pid_t child = fork();
  if (child == 0) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, outlive_main, NULL) == 0 && pthread_detach(thread) == 0);
    pthread_exit(NULL);
  }
  CHECK(ended_with(child, 0));
}

static void* fork_and_return(void* child) {
  use_far_memory(2);
  *(pid_t*)child = fork();
  return NULL;
}

// A child of a fork in a thread that returns: it was the only thread of the child.
static void fork_in_thread(void) {
  pid_t parent = getpid(), child;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, fork_and_return, &child) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(getpid() == parent && ended_with(child, 0));
}

// Whether a line of the status of each thread has this text.
static void check_status_of_threads(const char* wanted) {
  DIR* tasks = opendir("/proc/self/task");
  CHECK(tasks);
  for (struct dirent* task; (task = readdir(tasks));) {
    if (task->d_name[0] == '.') continue;
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/self/task/%.20s/status", task->d_name);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    ssize_t bytes = read(fd, text, sizeof text - 1);
    CHECK(bytes > 0);
    text[bytes] = 0;
    CHECK(strstr(text, wanted));
    close(fd);
  }
  closedir(tasks);
}

static void* wait_for_end(void* end) {
  char byte;
  CHECK(read(*(int*)end, &byte, 1) == 0);
  return NULL;
}

static void become_nobody(void) {
  use_far_memory(3);
  int ends[2];
  pthread_t thread;
  CHECK(pipe(ends) == 0 && pthread_create(&thread, NULL, wait_for_end, &ends[0]) == 0);
  CHECK(setgroups(0, NULL) == 0 && setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
  check_status_of_threads("\nUid:\t65534\t65534\t65534\t65534\n");
  check_status_of_threads("\nGid:\t65534\t65534\t65534\t65534\n");
  check_status_of_threads("\nCapEff:\t0000000000000000\n");
  use_far_memory(4);
  close(ends[1]);
  CHECK(pthread_join(thread, NULL) == 0);
}

// libc changes the identity of all threads that it knows.
static void credentials(void) {
  if (geteuid() != 0 || in_handler_mode()) return;
  pid_t child = fork();
  if (child == 0) {
    become_nobody();
    _exit(0);
  }
  CHECK(ended_with(child, 0));
}

// Far memory of a user's processes that another user started: a fork, an executed program and a new thread reach the
// memory server.
static void after_a_change_of_user(void) {
  if (geteuid() != 0) return;
  pid_t child = fork();
  if (child == 0) {
    use_far_memory(11);
    CHECK(setgroups(0, NULL) == 0 && setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
    pid_t fork_of_child = fork();
    if (fork_of_child == 0) {
      use_far_memory(12);
      _exit(0);
    }
    CHECK(ended_with(fork_of_child, 0));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, outlive_main, NULL) == 0 && pthread_join(thread, NULL) == 0);
    execl(program_path, program_path, "last_thread", NULL);
    _exit(98);
  }
  CHECK(ended_with(child, 0));
}

// As daemons do: nothing of the file system is visible after the change of the root directory, the new user may not use
// the server's socket, and no descriptor of the program is open. A fork and a new thread reach the memory server.
static void use_after_chroot(int use_before) {
  char empty[] = "/tmp/farside-root-XXXXXX";
  CHECK(mkdtemp(empty));
  pid_t child = fork();
  if (child == 0) {
    if (use_before) use_far_memory(13);
    CHECK(chroot(empty) == 0 && chdir("/") == 0 && close_range(3, ~0U, 0) == 0);
    CHECK(setgroups(0, NULL) == 0 && setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
    pid_t fork_of_child = fork();
    if (fork_of_child == 0) {
      use_far_memory(14);
      _exit(0);
    }
    CHECK(ended_with(fork_of_child, 0));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, outlive_main, NULL) == 0 && pthread_join(thread, NULL) == 0);
    use_far_memory(15);
    _exit(0);
  }
  CHECK(ended_with(child, 0));
  CHECK(rmdir(empty) == 0);
}

static void after_chroot(void) {
  if (geteuid() != 0) return;
  use_after_chroot(0);
  use_after_chroot(1);
}

// Afterwards no thread can be started and nothing connected.
static void after_seccomp(void) {
  if (in_handler_mode()) return;
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 4, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socketpair, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_connect, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
  };
  struct sock_fprog filter = {sizeof code / sizeof *code, code};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
  use_far_memory(16);
}

// Unless the machine forbids them.
static void namespaces(void) {
  if (in_handler_mode()) return;
  use_far_memory(5);
  int error = unshare(CLONE_NEWUSER) == 0 ? 0 : errno;
  CHECK(error == 0 || error == EPERM || error == ENOSPC);
  use_far_memory(6);
  if (error == 0) CHECK(unshare(CLONE_NEWNS) == 0);
  use_far_memory(7);
}

// The kernel lets a process create no more threads after this, so Farside's must stay.
static void process_namespace(void) {
  if (in_handler_mode()) return;
  int flags[] = {CLONE_NEWPID, CLONE_NEWUSER | CLONE_NEWPID};
  for (int i = 0; i < 2; i++) {
    pid_t child = fork();
    if (child == 0) {
      if (unshare(flags[i]) != 0) _exit(errno == EPERM || errno == ENOSPC ? 0 : 1);
      use_far_memory(8);
      pid_t first = fork();
      if (first == 0) {
        use_far_memory(9);
        _exit(getpid() == 1 ? 5 : 6);
      }
      CHECK(ended_with(first, 5));
      CHECK(i == 1 || setresuid(65534, 65534, 65534) == 0);
      use_far_memory(10);
      _exit(0);
    }
    CHECK(ended_with(child, 0));
  }
}

int main(int argc, char** argv) {
  static const struct test_case cases[] = {{"last_thread", last_thread},
                                           {"fork_in_thread", fork_in_thread},
                                           {"credentials", credentials},
                                           {"after_a_change_of_user", after_a_change_of_user},
                                           {"after_chroot", after_chroot},
                                           {"after_seccomp", after_seccomp},
                                           {"namespaces", namespaces},
                                           {"process_namespace", process_namespace},
                                           {NULL, NULL}};
  if (argc > 0) program_path = argv[0];
  return run_case(argc, argv, cases);
}
