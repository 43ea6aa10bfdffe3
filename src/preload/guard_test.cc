// System calls with far arguments through the guard. In signal mode a call returns EFAULT when the kernel accesses an
// absent page, so memory that the guard does not pin gives a result other than that of the call with near arguments.
#include "preload/guard/guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/openat2.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <climits>
#include <functional>

#include "preload/guard/process.h"
#include "preload/guard/special_calls.h"
#include "preload/guard/transfers.h"
#include "preload/test_support.h"
#include "preload/trace/trace.h"

// ---- Stand-ins for functions of the preload library that the guard calls ----

namespace farside::preload {

bool owns_fd(int) { return false; }
int token_fd() { return -1; }
void pass_token(bool) {}
bool in_handler_mode() { return false; }
void report_at_exit() {}
void note_exec() {}
void note_failed_exec() {}
void note_native_program(const char*, const char*) {}
bool g_tracing = false;
void trace_allocation(const void*, size_t) {}
void trace_code_change() {}
const char* static_program_path() { return ""; }
bool serves_static_programs() { return true; }
extern "C" void farside_on_sigbus(int, siginfo_t*, void*) { abort(); }
extern "C" void farside_on_sigsys(int, siginfo_t*, void*) { abort(); }
extern "C" void farside_on_signal(int, siginfo_t*, void*) { abort(); }

namespace {

// Arguments of a system call: near, or far with no page near when the call is made. Each begins `before` bytes before
// the end of a page.
class Place {
 public:
  Place(bool far, size_t before) : far_(far), before_(before) {
    memory_ = far ? reinterpret_cast<char*>(
                        far_mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
                  : static_cast<char*>(os::map_near(kBytes));
  }
  ~Place() { far_ ? static_cast<void>(far_munmap(memory_, kBytes)) : os::unmap(memory_, kBytes); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  char* room(size_t bytes) {
    size_t before = bytes < 2 ? 0 : before_ == 0 ? bytes - 1 : std::min(before_, bytes - 1);
    char* at = memory_ + (next_ += kPageSize) - before;
    next_ += align_up(bytes, kPageSize);
    EXPECT_LT(next_, kBytes);
    return at;
  }
  template <typename T>
  T* put(const T& value) {
    return static_cast<T*>(memcpy(static_cast<void*>(room(sizeof value)), &value, sizeof value));
  }
  char* text(const std::string& value) {
    return static_cast<char*>(memcpy(room(value.size() + 1), value.c_str(), value.size() + 1));
  }
  template <typename... Args>
  long call(long number, Args... args) {
    if (!far_) return os::call(number, args...);
    GuardedPager::get().evict(memory_, next_);
    Call c = {number, {}, stack_pointer()};
    size_t i = 0;
    ((c.arg[i++] = (long)(args)), ...);
    return guarded_call(c);
  }
  bool is_far() const { return far_; }

 private:
  static constexpr size_t kBytes = 4 * kMiB;
  const bool far_;
  const size_t before_;
  char* memory_;
  size_t next_ = kPageSize;
};

// The results and output of a case's calls, for comparison.
class Outcome {
 public:
  void add(long value) { text_ += std::to_string(value) + ";"; }
  void add(const void* bytes, size_t count) { text_.append(static_cast<const char*>(bytes), count); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

struct Case {
  const char* name;
  std::function<void(Place&, Outcome&)> run;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class CallTest : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { GuardedPager::get(); }
};

int temporary_file(const std::string& content = "") {
  int fd = os::memfd_create("guard_test", 0);
  EXPECT_EQ(os::write(fd, content.data(), content.size()), static_cast<ssize_t>(content.size()));
  EXPECT_EQ(::lseek(fd, 0, SEEK_SET), 0);
  return fd;
}

std::string temporary_path() {
  static int count = 0;
  return "/tmp/farside-guard-" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

// A descriptor, as an outcome: whether there is one.
void add_fd(Outcome& out, long fd) {
  out.add(fd < 0 ? fd : 1);
  if (fd >= 0) os::close(static_cast<int>(fd));
}

// A child process that exits at once without executing any of our code.
long ended_child() {
  long pid = os::call(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (pid == 0) os::exit_group(7);
  return pid;
}

sockaddr_un abstract_name() {
  static int count = 0;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "farside-guard-%d-%d", getpid(), count++);
  return address;
}

std::vector<Case> file_cases() {
  return {
      {"openat",
       [](Place& p, Outcome& o) { add_fd(o, p.call(SYS_openat, AT_FDCWD, p.text("/proc/self/exe"), O_RDONLY, 0)); }},
      {"openat2",
       [](Place& p, Outcome& o) {
         open_how how = {};
         how.flags = O_RDONLY;
         auto* text = p.text("/dev/null");
         add_fd(o, p.call(SYS_openat2, AT_FDCWD, text, p.put(how), sizeof how));
       }},
      {"newfstatat",
       [](Place& p, Outcome& o) {
         auto* s = p.put<struct stat>({});
         o.add(p.call(SYS_newfstatat, AT_FDCWD, p.text("/dev/null"), s, 0));
         o.add(s->st_mode);
         o.add(static_cast<long>(s->st_ino));
       }},
      {"fstat",
       [](Place& p, Outcome& o) {
         int fd = temporary_file("12345");
         auto* s = p.put<struct stat>({});
         o.add(p.call(SYS_fstat, fd, s));
         o.add(s->st_size);
         os::close(fd);
       }},
      {"statx",
       [](Place& p, Outcome& o) {
         auto* s = p.put<struct statx>({});
         o.add(p.call(SYS_statx, AT_FDCWD, p.text("/dev/null"), 0, STATX_BASIC_STATS, s));
         o.add(s->stx_mode);
       }},
      {"statfs",
       [](Place& p, Outcome& o) {
         auto* s = p.put<struct statfs>({});
         o.add(p.call(SYS_statfs, p.text("/proc"), s));
         o.add(s->f_type);
       }},
      {"faccessat",
       [](Place& p, Outcome& o) { o.add(p.call(SYS_faccessat, AT_FDCWD, p.text("/no/such/file"), F_OK)); }},
      {"readlinkat",
       [](Place& p, Outcome& o) {
         auto* to = p.room(300);
         long r = p.call(SYS_readlinkat, AT_FDCWD, p.text("/proc/self/exe"), to, 300);
         o.add(r);
         if (r > 0) o.add(to, static_cast<size_t>(r));
       }},
      {"getcwd",
       [](Place& p, Outcome& o) {
         auto* to = p.room(5000);
         o.add(p.call(SYS_getcwd, to, 5000));
         o.add(to, strlen(to));
       }},
      {"getdents64",
       [](Place& p, Outcome& o) {
         int fd = os::open("/proc/self/ns", O_RDONLY | O_DIRECTORY);
         auto* to = p.room(6000);
         long r = p.call(SYS_getdents64, fd, to, 6000);
         o.add(r);
         if (r > 0) o.add(to, static_cast<size_t>(r));
         os::close(fd);
       }},
      {"names",
       [](Place& p, Outcome& o) {
         std::string a = temporary_path(), b = temporary_path(), c = temporary_path();
         o.add(p.call(SYS_mkdirat, AT_FDCWD, p.text(a), 0700));
         o.add(p.call(SYS_renameat2, AT_FDCWD, p.text(a), AT_FDCWD, p.text(b), 0));
         o.add(p.call(SYS_symlinkat, p.text(b), AT_FDCWD, p.text(c)));
         timespec times[2] = {{5, 0}, {6, 0}};
         o.add(p.call(SYS_utimensat, AT_FDCWD, p.text(b), p.put(times), 0));
         struct stat s = {};
         ::stat(b.c_str(), &s);
         o.add(s.st_mtim.tv_sec);
         o.add(p.call(SYS_fchmodat, AT_FDCWD, p.text(b), 0500));
         o.add(p.call(SYS_unlinkat, AT_FDCWD, p.text(c), 0));
         o.add(p.call(SYS_unlinkat, AT_FDCWD, p.text(b), AT_REMOVEDIR));
       }},
      {"xattr",
       [](Place& p, Outcome& o) {
         std::string path = temporary_path();
         os::close(os::open(path.c_str(), O_CREAT | O_RDWR, 0600));
         auto* value = p.text("a value");
         o.add(p.call(SYS_setxattr, p.text(path), p.text("user.farside"), value, 7, 0));
         auto* to = p.room(100);
         long r = p.call(SYS_getxattr, p.text(path), p.text("user.farside"), to, 100);
         o.add(r);
         if (r > 0) o.add(to, static_cast<size_t>(r));
         auto* names = p.room(1000);
         o.add(p.call(SYS_listxattr, p.text(path), names, 1000));
         ::unlink(path.c_str());
       }},
      {"memfd_create", [](Place& p, Outcome& o) { add_fd(o, p.call(SYS_memfd_create, p.text("a name"), 0)); }},
      {"pipe2",
       [](Place& p, Outcome& o) {
         struct Pair {
           int fd[2];
         };
         auto* pair = p.put<Pair>({{-1, -1}});
         o.add(p.call(SYS_pipe2, pair, 0));
         add_fd(o, pair->fd[0]);
         add_fd(o, pair->fd[1]);
       }},
      {"fcntl",
       [](Place& p, Outcome& o) {
         int fd = temporary_file("12345");
         struct flock lock = {};
         lock.l_type = F_WRLCK;
         auto* l = p.put(lock);
         o.add(p.call(SYS_fcntl, fd, F_GETLK, l));
         o.add(l->l_type);
         os::close(fd);
       }},
      {"sendfile",
       [](Place& p, Outcome& o) {
         int from = temporary_file("0123456789"), to = temporary_file();
         auto* offset = p.put<long>(3);
         o.add(p.call(SYS_sendfile, to, from, offset, 100));
         o.add(*offset);
         os::close(from);
         os::close(to);
       }},
      {"copy_file_range",
       [](Place& p, Outcome& o) {
         int from = temporary_file("0123456789"), to = temporary_file();
         auto *in = p.put<long>(3), *out = p.put<long>(1);
         o.add(p.call(SYS_copy_file_range, from, in, to, out, 4, 0));
         o.add(*in);
         o.add(*out);
         os::close(from);
         os::close(to);
       }},
      {"inotify_add_watch",
       [](Place& p, Outcome& o) {
         int fd = static_cast<int>(os::call(SYS_inotify_init1, 0));
         o.add(p.call(SYS_inotify_add_watch, fd, p.text("/tmp"), 2));
         os::close(fd);
       }},
      {"name_to_handle_at",
       [](Place& p, Outcome& o) {
         struct Handle {
           unsigned bytes;
           int type;
           char data[128];
         };
         auto* handle = p.put<Handle>({128, 0, {}});
         auto* mount = p.put<int>(0);
         o.add(p.call(SYS_name_to_handle_at, AT_FDCWD, p.text("/tmp"), handle, mount, 0));
         o.add(handle->bytes);
       }},
      {"mincore",
       [](Place& p, Outcome& o) {
         size_t bytes = 6000 * kPageSize;  // a byte for each page: more than a page of them
         void* range = os::map_near(bytes);
         auto* resident = p.room(6000);
         o.add(p.call(SYS_mincore, range, bytes, resident));
         o.add(resident, 6000);
         os::unmap(range, bytes);
       }},
  };
}

std::vector<Case> socket_cases() {
  return {
      {"sockets",
       [](Place& p, Outcome& o) {
         sockaddr_un name = abstract_name();
         int server = ::socket(AF_UNIX, SOCK_STREAM, 0), client = ::socket(AF_UNIX, SOCK_STREAM, 0);
         o.add(p.call(SYS_bind, server, p.put(name), sizeof name));
         o.add(::listen(server, 1));
         o.add(p.call(SYS_connect, client, p.put(name), sizeof name));
         auto* peer = p.put<sockaddr_storage>({});
         auto* length = p.put<socklen_t>(sizeof(sockaddr_storage));
         long fd = p.call(SYS_accept4, server, peer, length, 0);
         o.add(*length);
         add_fd(o, fd);
         auto* own = p.put<sockaddr_storage>({});
         auto* own_length = p.put<socklen_t>(sizeof(sockaddr_storage));
         o.add(p.call(SYS_getsockname, server, own, own_length));
         o.add(*own_length);
         o.add(p.call(SYS_getpeername, client, own, own_length));
         os::close(server);
         os::close(client);
       }},
      {"socketpair",
       [](Place& p, Outcome& o) {
         struct Pair {
           int fd[2];
         };
         auto* pair = p.put<Pair>({{-1, -1}});
         o.add(p.call(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, pair));
         add_fd(o, pair->fd[0]);
         add_fd(o, pair->fd[1]);
       }},
      {"sockopt",
       [](Place& p, Outcome& o) {
         int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
         o.add(p.call(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVBUF, p.put<int>(10'000), sizeof(int)));
         auto* value = p.put<int>(0);
         auto* length = p.put<socklen_t>(sizeof(int));
         o.add(p.call(SYS_getsockopt, fd, SOL_SOCKET, SO_RCVBUF, value, length));
         o.add(*value);
         o.add(*length);
         os::close(fd);
       }},
      {"poll",
       [](Place& p, Outcome& o) {
         struct Many {
           pollfd fds[700];
         };
         Many many = {};
         for (auto& f : many.fds) f = {-1, POLLIN, 0};
         many.fds[0].fd = many.fds[699].fd = temporary_file("x");
         auto* list = p.put(many);
         o.add(p.call(SYS_poll, list, 700, 0));
         o.add(list->fds[0].revents);
         o.add(list->fds[699].revents);
         os::close(many.fds[0].fd);
       }},
      {"ioctl",
       [](Place& p, Outcome& o) {
         int fds[2];
         os::pipe(fds, 0);
         os::write(fds[1], "abc", 3);
         auto* bytes = p.put<int>(0);
         o.add(p.call(SYS_ioctl, fds[0], FIONREAD, bytes));
         o.add(*bytes);
         auto* size = p.put<winsize>({});
         o.add(p.call(SYS_ioctl, fds[0], TIOCGWINSZ, size));
         os::close(fds[0]);
         os::close(fds[1]);
       }},
      {"select",
       [](Place& p, Outcome& o) {
         rlimit limit;
         EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
         limit.rlim_cur = limit.rlim_max;
         EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
         int file = temporary_file("x"), fd = ::fcntl(file, F_DUPFD, 1500);  // beyond FD_SETSIZE: larger sets
         ASSERT_EQ(fd / 64, 23);                                             // in the last word
         struct Sets {
           unsigned long words[24];
         };
         Sets sets = {};
         sets.words[fd / 64] |= 1ul << (fd % 64);
         auto *read = p.put(sets), *write = p.put(sets);
         auto* timeout = p.put<timeval>({0, 0});
         o.add(p.call(SYS_select, fd + 1, read, write, 0, timeout));
         o.add(read, sizeof *read);
         o.add(write, sizeof *write);
         os::close(file);
         os::close(fd);
       }},
      {"epoll",
       [](Place& p, Outcome& o) {
         int fd = static_cast<int>(os::call(SYS_epoll_create1, 0)), fds[2];
         os::pipe(fds, 0);
         epoll_event event = {};
         event.events = EPOLLOUT;
         event.data.u64 = 77;
         o.add(p.call(SYS_epoll_ctl, fd, EPOLL_CTL_ADD, fds[1], p.put(event)));
         struct Many {
           epoll_event events[10];
         };
         auto* got = p.put<Many>({});
         o.add(p.call(SYS_epoll_wait, fd, got, 10, 0));
         o.add(static_cast<long>(got->events[0].data.u64));
         for (int f : {fd, fds[0], fds[1]}) os::close(f);
       }},
      {"signalfd4", [](Place& p, Outcome& o) { add_fd(o, p.call(SYS_signalfd4, -1, p.put<uint64_t>(0), 8, 0)); }},
  };
}

std::vector<Case> time_cases() {
  return {
      {"clock_gettime",
       [](Place& p, Outcome& o) {
         auto* t = p.put<timespec>({0, -1});
         o.add(p.call(SYS_clock_gettime, CLOCK_MONOTONIC, t));
         o.add(t->tv_nsec >= 0);
       }},
      {"gettimeofday",
       [](Place& p, Outcome& o) {
         auto* t = p.put<timeval>({0, 0});
         auto* zone = p.put<uint64_t>(0);
         o.add(p.call(SYS_gettimeofday, t, zone));
         o.add(t->tv_sec > 0);
       }},
      {"nanosleep",
       [](Place& p, Outcome& o) {
         o.add(p.call(SYS_nanosleep, p.put<timespec>({0, 1}), p.put<timespec>({})));
       }},
      {"clock_nanosleep",
       [](Place& p, Outcome& o) {
         o.add(p.call(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, p.put<timespec>({0, 1}), p.put<timespec>({})));
       }},
      {"timerfd",
       [](Place& p, Outcome& o) {
         int fd = ::timerfd_create(CLOCK_MONOTONIC, 0);
         o.add(p.call(SYS_timerfd_settime, fd, 0, p.put<itimerspec>({{}, {1000, 0}}), p.put<itimerspec>({})));
         auto* now = p.put<itimerspec>({});
         o.add(p.call(SYS_timerfd_gettime, fd, now));
         o.add(now->it_value.tv_sec > 900);
         os::close(fd);
       }},
      {"itimer",
       [](Place& p, Outcome& o) {
         o.add(p.call(SYS_setitimer, ITIMER_REAL, p.put<itimerval>({{}, {1000, 0}}), p.put<itimerval>({})));
         auto* now = p.put<itimerval>({});
         o.add(p.call(SYS_getitimer, ITIMER_REAL, now));
         o.add(now->it_value.tv_sec > 900);
         o.add(p.call(SYS_setitimer, ITIMER_REAL, p.put<itimerval>({}), 0));
       }},
      {"timer",
       [](Place& p, Outcome& o) {
         sigevent event = {};
         event.sigev_notify = SIGEV_NONE;
         auto* id = p.put<int>(-1);
         o.add(p.call(SYS_timer_create, CLOCK_MONOTONIC, p.put(event), id));
         o.add(*id >= 0);
         o.add(p.call(SYS_timer_settime, *id, 0, p.put<itimerspec>({{}, {1000, 0}}), p.put<itimerspec>({})));
         auto* now = p.put<itimerspec>({});
         o.add(p.call(SYS_timer_gettime, *id, now));
         o.add(now->it_value.tv_sec > 900);
         os::call(SYS_timer_delete, *id);
       }},
      {"times",
       [](Place& p, Outcome& o) {
         auto* t = p.put<tms>({-1, -1, -1, -1});
         o.add(p.call(SYS_times, t) > 0);
         o.add(t->tms_utime >= 0);
       }},
  };
}

std::vector<Case> process_cases() {
  return {
      {"wait4",
       [](Place& p, Outcome& o) {
         long pid = ended_child();
         auto* status = p.put<int>(-1);
         auto* usage = p.put<rusage>({});
         o.add(p.call(SYS_wait4, pid, status, 0, usage) == pid);
         o.add(*status);
         o.add(usage->ru_maxrss > 0);
       }},
      {"waitid",
       [](Place& p, Outcome& o) {
         long pid = ended_child();
         auto* info = p.put<siginfo_t>({});
         auto* usage = p.put<rusage>({});
         o.add(p.call(SYS_waitid, P_PID, pid, info, WEXITED, usage));
         o.add(info->si_status);
         o.add(usage->ru_maxrss > 0);
       }},
      {"getrusage",
       [](Place& p, Outcome& o) {
         auto* usage = p.put<rusage>({});
         o.add(p.call(SYS_getrusage, RUSAGE_SELF, usage));
         o.add(usage->ru_maxrss > 0);
       }},
      {"limits",
       [](Place& p, Outcome& o) {
         auto *old = p.put<rlimit>({}), *now = p.put<rlimit>({});
         o.add(p.call(SYS_getrlimit, RLIMIT_NOFILE, now));
         o.add(p.call(SYS_prlimit64, 0, RLIMIT_NOFILE, p.put(*now), old));
         o.add(old, sizeof *old);
         o.add(p.call(SYS_setrlimit, RLIMIT_NOFILE, p.put(*now)));
       }},
      {"ids",
       [](Place& p, Outcome& o) {
         auto *a = p.put<uid_t>(99), *b = p.put<uid_t>(99), *c = p.put<uid_t>(99);
         o.add(p.call(SYS_getresuid, a, b, c));
         o.add(*a);
         o.add(*c);
         auto* groups = p.room(65536 * 4);
         long count = p.call(SYS_getgroups, 65536, groups);
         o.add(count);
         if (count > 0) o.add(groups, static_cast<size_t>(count) * 4);
       }},
      {"capget",
       [](Place& p, Outcome& o) {
         struct Data {
           __user_cap_data_struct data[2];
         };
         auto* header = p.put<__user_cap_header_struct>({_LINUX_CAPABILITY_VERSION_3, 0});
         auto* data = p.put<Data>({});
         o.add(p.call(SYS_capget, header, data));
         o.add(data, sizeof *data);
       }},
      {"scheduling",
       [](Place& p, Outcome& o) {
         auto* set = p.room(1024);
         long r = p.call(SYS_sched_getaffinity, 0, 1024, set);
         o.add(r);
         o.add(set, 128);
         o.add(p.call(SYS_sched_setaffinity, 0, 128, set));
         auto* param = p.put<sched_param>({-1});
         o.add(p.call(SYS_sched_getparam, 0, param));
         o.add(param->sched_priority);
         o.add(p.call(SYS_sched_setscheduler, 0, SCHED_OTHER, param));
         auto* attributes = p.room(56);
         o.add(p.call(SYS_sched_getattr, 0, attributes, 56, 0));
         auto* interval = p.put<timespec>({-1, -1});
         o.add(p.call(SYS_sched_rr_get_interval, 0, interval));
         o.add(interval->tv_sec);
       }},
      {"getcpu",
       [](Place& p, Outcome& o) {
         auto *cpu = p.put<unsigned>(~0u), *node = p.put<unsigned>(~0u);
         o.add(p.call(SYS_getcpu, cpu, node, 0));
         o.add(*cpu < 4096);
         o.add(*node < 4096);
       }},
      {"signals",
       [](Place& p, Outcome& o) {
         auto* pending = p.put<uint64_t>(1);
         o.add(p.call(SYS_rt_sigpending, pending, 8));
         o.add(static_cast<long>(*pending));
         auto* info = p.put<siginfo_t>({});
         o.add(p.call(SYS_rt_sigtimedwait, p.put<uint64_t>(os::signal_bit(SIGURG)), info, p.put<timespec>({0, 0}), 8));
         siginfo_t sent = {};
         sent.si_signo = SIGURG;  // ignored by default
         sent.si_code = -1;
         o.add(p.call(SYS_rt_sigqueueinfo, getpid(), SIGURG, p.put(sent)));
       }},
      {"uname",
       [](Place& p, Outcome& o) {
         auto* name = p.put<utsname>({});
         o.add(p.call(SYS_uname, name));
         o.add(name, sizeof *name);
       }},
      {"sysinfo",
       [](Place& p, Outcome& o) {
         auto* info = p.put<struct sysinfo>({});
         o.add(p.call(SYS_sysinfo, info));
         o.add(static_cast<long>(info->totalram / 1024));
       }},
      {"getrandom",
       [](Place& p, Outcome& o) {
         auto* to = p.room(200);
         o.add(p.call(SYS_getrandom, to, 200, 0));
       }},
      {"futex",
       [](Place& p, Outcome& o) {
         auto* word = p.put<alignas(4) uint32_t>(5);
         word = reinterpret_cast<uint32_t*>(align_up(reinterpret_cast<uint64_t>(word), 4));
         *word = 5;
         o.add(p.call(SYS_futex, word, FUTEX_WAKE, 1, 0, 0, 0));
         o.add(p.call(SYS_futex, word, FUTEX_WAIT, 6, 0, 0, 0));
         o.add(p.call(SYS_futex, word, FUTEX_WAIT, 5, p.put<timespec>({0, 1000}), 0, 0));
       }},
  };
}

std::vector<Case> ipc_cases() {
  struct Message {
    long type;
    char text[100];
  };
  auto messages = [](Place& p, Outcome& o) {
    int queue = ::msgget(IPC_PRIVATE, 0600);
    Message message = {3, "hello"};
    o.add(p.call(SYS_msgsnd, queue, p.put(message), 100, 0));
    o.add(p.call(SYS_msgsnd, queue, p.put<long>(4), 0, 0));  // a type alone
    auto* got = p.put<Message>({});
    o.add(p.call(SYS_msgrcv, queue, got, 100, 3, IPC_NOWAIT));
    o.add(got, sizeof *got);
    auto* empty = p.put<long>(0);
    o.add(p.call(SYS_msgrcv, queue, empty, 0, 0, IPC_NOWAIT));
    o.add(*empty);
    auto* state = p.put<msqid_ds>({});
    o.add(p.call(SYS_msgctl, queue, IPC_STAT, state));
    o.add(static_cast<long>(state->msg_qnum));
    ::msgctl(queue, IPC_RMID, nullptr);
  };
  auto semaphores = [](Place& p, Outcome& o) {
    int set = ::semget(IPC_PRIVATE, 2, 0600);
    struct Steps {
      sembuf step[2];
    };
    o.add(p.call(SYS_semop, set, p.put<Steps>({{{0, 2, 0}, {1, 1, 0}}}), 2));
    o.add(p.call(SYS_semtimedop, set, p.put<Steps>({{{0, -1, 0}, {1, -1, 0}}}), 2, p.put<timespec>({0, 1})));
    o.add(::semctl(set, 0, GETVAL));
    ::semctl(set, 0, IPC_RMID);
  };
  auto shared_memory = [](Place& p, Outcome& o) {
    int id = ::shmget(IPC_PRIVATE, 5000, 0600);
    auto* state = p.put<shmid_ds>({});
    o.add(p.call(SYS_shmctl, id, IPC_STAT, state));
    o.add(static_cast<long>(state->shm_segsz));
    ::shmctl(id, IPC_RMID, nullptr);
  };
  auto queues = [](Place& p, Outcome& o) {
    std::string name = "farside-guard-" + std::to_string(getpid());  // the system call takes the name without a slash
    mq_attr attributes = {};
    attributes.mq_maxmsg = 2;
    attributes.mq_msgsize = 100;
    long queue = p.call(SYS_mq_open, p.text(name), O_CREAT | O_RDWR | O_NONBLOCK, 0600, p.put(attributes));
    o.add(queue < 0 ? queue : 0);
    if (queue < 0) return;
    o.add(p.call(SYS_mq_timedsend, queue, p.text("hello"), 5, 7, p.put<timespec>({0, 0})));
    auto* to = p.room(100);
    auto* priority = p.put<unsigned>(0);
    o.add(p.call(SYS_mq_timedreceive, queue, to, 100, priority, p.put<timespec>({0, 0})));
    o.add(to, 5);
    o.add(*priority);
    auto* now = p.put<mq_attr>({});
    o.add(p.call(SYS_mq_getsetattr, queue, 0, now));
    o.add(now->mq_msgsize);
    o.add(p.call(SYS_mq_unlink, p.text(name)));
    os::close(static_cast<int>(queue));
  };
  return {
      {"messages", messages}, {"semaphores", semaphores}, {"shared_memory", shared_memory}, {"message_queues", queues}};
}

// ---- Transfers ----

struct Vector {
  iovec piece[3];
};

std::vector<Case> transfer_cases() {
  auto files = [](Place& p, Outcome& o) {
    int fd = temporary_file();
    auto* text = p.text("0123456789abcdef");
    o.add(p.call(SYS_write, fd, text, 16));
    o.add(p.call(SYS_pwrite64, fd, text, 5, 3));
    auto* to = p.room(100);
    o.add(p.call(SYS_pread64, fd, to, 100, 2));
    o.add(to, 14);
    o.add(p.call(SYS_read, fd, to, 100));  // the file's own position is at its end
    o.add(::lseek(fd, 0, SEEK_SET));
    o.add(p.call(SYS_read, fd, to, 7));
    o.add(to, 7);
    os::close(fd);
  };
  auto vectors = [](Place& p, Outcome& o) {
    int fd = temporary_file();
    Vector from = {{{p.text("0123456789"), 10}, {nullptr, 0}, {p.text("abcdefgh"), 8}}};
    o.add(p.call(SYS_writev, fd, p.put(from), 3));
    o.add(p.call(SYS_pwritev, fd, p.put(from), 3, 5, 0));
    o.add(p.call(SYS_pwritev2, fd, p.put(from), 1, -1, -1, 0));  // at the file's own position
    char *a = p.room(10), *b = p.room(30);
    Vector to = {{{a, 10}, {b, 4}, {b + 4, 26}}};
    o.add(::lseek(fd, 0, SEEK_SET));
    long n = p.call(SYS_readv, fd, p.put(to), 3);
    o.add(n);
    o.add(a, 10);
    o.add(b, static_cast<size_t>(n) - 10);
    o.add(p.call(SYS_preadv, fd, p.put(to), 2, 9, 0));
    o.add(a, 10);
    o.add(p.call(SYS_preadv2, fd, p.put(to), 2, 3, 0, 0));
    o.add(a, 10);
    os::close(fd);
  };
  auto streams = [](Place& p, Outcome& o) {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    o.add(p.call(SYS_sendto, pair[0], p.text("hello"), 5, 0, 0, 0));
    auto* to = p.room(100);
    o.add(p.call(SYS_recvfrom, pair[1], to, 100, 0, 0, 0));  // no more than there is
    o.add(to, 5);
    o.add(p.call(SYS_recvfrom, pair[1], to, 100, MSG_DONTWAIT, 0, 0));
    os::close(pair[0]);
    o.add(p.call(SYS_recvfrom, pair[1], to, 100, 0, 0, 0));
    os::close(pair[1]);
  };
  auto datagrams = [](Place& p, Outcome& o) {
    sockaddr_un name = abstract_name();
    int from = ::socket(AF_UNIX, SOCK_DGRAM, 0), to = ::socket(AF_UNIX, SOCK_DGRAM, 0);
    sockaddr_un sender = abstract_name();
    o.add(::bind(to, reinterpret_cast<sockaddr*>(&name), sizeof name));
    o.add(::bind(from, reinterpret_cast<sockaddr*>(&sender), sizeof sender));
    char near[] = "near";
    o.add(p.call(SYS_sendto, from, p.text("far data"), 8, 0, p.put(name), sizeof name));
    o.add(p.call(SYS_sendto, from, near, 4, 0, p.put(name), sizeof name));  // only the address is far
    auto* data = p.room(100);
    auto* address = p.put<sockaddr_storage>({});
    auto* length = p.put<socklen_t>(sizeof(sockaddr_storage));
    o.add(p.call(SYS_recvfrom, to, data, 100, 0, address, length));
    o.add(data, 8);
    o.add(*length);
    char buffer[100];
    auto* second = p.put<socklen_t>(sizeof(sockaddr_storage));
    o.add(p.call(SYS_recvfrom, to, buffer, 100, 0, address, second));
    o.add(*second);
    o.add(p.call(SYS_sendto, from, p.text("x"), 0, 0, p.put(name), sizeof name));  // empty
    o.add(p.call(SYS_recvfrom, to, data, 0, MSG_DONTWAIT, address, p.put<socklen_t>(sizeof(sockaddr_storage))));
    os::close(from);
    os::close(to);
  };
  auto messages = [](Place& p, Outcome& o) {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
    struct Control {
      alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(int))];
    };
    Control control = {};
    auto* c = reinterpret_cast<cmsghdr*>(control.bytes);
    *c = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(c), &pair[0], sizeof(int));
    msghdr sent = {};
    sent.msg_iov =
        reinterpret_cast<iovec*>(p.put<Vector>({{{p.text("one "), 4}, {p.text("two "), 4}, {p.text("three"), 5}}}));
    sent.msg_iovlen = 3;
    sent.msg_control = p.put(control);
    sent.msg_controllen = sizeof control;
    o.add(p.call(SYS_sendmsg, pair[0], p.put(sent), 0));
    char *a = p.room(5), *b = p.room(50);
    msghdr received = {};
    received.msg_iov = reinterpret_cast<iovec*>(p.put<Vector>({{{a, 5}, {b, 20}, {b + 20, 30}}}));
    received.msg_iovlen = 3;
    auto* ancillary = p.put<Control>({});
    received.msg_control = ancillary;
    received.msg_controllen = sizeof *ancillary;
    received.msg_flags = -1;
    auto* header = p.put(received);
    o.add(p.call(SYS_recvmsg, pair[1], header, 0));
    o.add(a, 5);
    o.add(b, 8);
    o.add(static_cast<long>(header->msg_controllen));
    o.add(header->msg_flags);
    int passed = -1;
    memcpy(&passed, CMSG_DATA(reinterpret_cast<cmsghdr*>(ancillary)), sizeof passed);
    add_fd(o, passed);
    os::close(pair[0]);
    os::close(pair[1]);
  };
  auto addressed_messages = [](Place& p, Outcome& o) {
    sockaddr_un name = abstract_name(), sender = abstract_name();
    int from = ::socket(AF_UNIX, SOCK_DGRAM, 0), to = ::socket(AF_UNIX, SOCK_DGRAM, 0);
    o.add(::bind(to, reinterpret_cast<sockaddr*>(&name), sizeof name));
    o.add(::bind(from, reinterpret_cast<sockaddr*>(&sender), sizeof sender - 9));
    char data[] = "data", got[10] = {};
    iovec near = {data, 4};
    msghdr sent = {p.put(name), sizeof name, &near, 1, nullptr, 0, 0};  // only the address is far
    o.add(p.call(SYS_sendmsg, from, &sent, 0));
    near = {got, sizeof got};
    struct Room {
      char bytes[200];
    };
    auto *address = p.put<sockaddr_storage>({}), *unused = reinterpret_cast<sockaddr_storage*>(p.put<Room>({}));
    msghdr received = {address, sizeof *address, &near, 1, unused, sizeof(Room), -1};
    o.add(p.call(SYS_recvmsg, to, &received, 0));
    o.add(got, 4);
    o.add(received.msg_namelen);  // what came of the address and of ancillary data
    o.add(static_cast<long>(received.msg_controllen));
    o.add(address->ss_family);
    os::close(from);
    os::close(to);
  };
  auto many_messages = [](Place& p, Outcome& o) {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
    struct Many {
      mmsghdr message[3];
    };
    auto many = [&](char* first, char* second, char* third, size_t bytes) {
      auto* v = p.put<Vector>({{{first, bytes}, {second, bytes}, {third, bytes}}});
      Many m = {};
      for (int i = 0; i < 3; i++) m.message[i].msg_hdr.msg_iov = &v->piece[i];
      for (auto& one : m.message) one.msg_hdr.msg_iovlen = 1;
      return p.put(m);
    };
    auto* sent = many(p.text("one"), p.text("two"), p.text("six"), 3);
    o.add(p.call(SYS_sendmmsg, pair[0], sent, 3, 0));
    o.add(sent->message[2].msg_len);
    char *a = p.room(10), *b = p.room(10), *c = p.room(10);
    auto* got = many(a, b, c, 10);
    o.add(p.call(SYS_recvmmsg, pair[1], got, 2, 0, 0));
    o.add(a, 3);
    o.add(b, 3);
    o.add(got->message[1].msg_len);
    o.add(p.call(SYS_recvmmsg, pair[1], got, 3, MSG_WAITFORONE, 0));  // one is left
    o.add(a, 3);
    o.add(p.call(SYS_recvmmsg, pair[1], got, 3, MSG_DONTWAIT, 0));
    os::close(pair[0]);
    os::close(pair[1]);
  };
  auto processes = [](Place& p, Outcome& o) {
    char remote[] = "what the other process has";
    Vector there = {{{remote, 26}, {}, {}}};
    char *a = p.room(10), *b = p.room(16);
    o.add(p.call(SYS_process_vm_readv, getpid(), p.put<Vector>({{{a, 10}, {b, 16}, {}}}), 2, &there, 1, 0));
    o.add(a, 10);
    o.add(b, 16);
    o.add(p.call(SYS_process_vm_writev, getpid(), p.put<Vector>({{{p.text("THAT"), 4}, {}, {}}}), 1, &there, 1, 0));
    o.add(remote, 26);
  };
  auto errors = [](Place& p, Outcome& o) {
    auto* to = p.room(100);
    o.add(p.call(SYS_read, -1, to, 100));
    o.add(p.call(SYS_write, -1, to, 100));
    o.add(p.call(SYS_sendto, 0, to, 100, 0, 0, 0));
    o.add(p.call(SYS_readv, -1, p.put<Vector>({{{to, 10}, {}, {}}}), 1));
    o.add(p.call(SYS_readv, 0, p.put<Vector>({{{to, 10}, {}, {}}}), IOV_MAX + 1));
    int fd = temporary_file("abc");
    o.add(p.call(SYS_read, fd, to, 0));
    o.add(p.call(SYS_pread64, fd, to, 10, -1));
    o.add(p.call(SYS_writev, fd, p.put<Vector>({{{to, 0}, {}, {}}}), 1));
    o.add(p.call(SYS_readv, fd, p.put<Vector>({}), 0));
    os::close(fd);
  };
  return {{"files", files},
          {"vectors", vectors},
          {"streams", streams},
          {"datagrams", datagrams},
          {"message", messages},
          {"addressed_messages", addressed_messages},
          {"several_messages", many_messages},
          {"processes", processes},
          {"errors", errors}};
}

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (auto cases : {file_cases(), socket_cases(), time_cases(), process_cases(), ipc_cases(), transfer_cases()}) {
    all.insert(all.end(), cases.begin(), cases.end());
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, CallTest, testing::ValuesIn(all_cases()),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(CallTest, FarAndNearArgumentsGiveTheSameResult) {
  Place near(false, 1);
  Outcome expected;
  GetParam().run(near, expected);
  // The page's end is after the first byte, before the last one, and in the middle of most arguments.
  for (size_t before : {1u, 0u, 9u}) {
    Place far(true, before);
    Outcome got;
    GetParam().run(far, got);
    EXPECT_EQ(got.text(), expected.text()) << before;
  }
}

// Otherwise the cases above would test nothing.
TEST(Guard, TheKernelDoesNotReadFarMemoryByItself) {
  GuardedPager::get();
  Place p(true, 1);
  auto* path = p.text("/dev/null");
  long result = 0;
  for (int i = 0; i < 10 && result != -EFAULT; i++) {  // a window may include the page
    if (result > 0) os::close(static_cast<int>(result));
    GuardedPager::get().evict(path, 10);
    result = os::call(SYS_openat, AT_FDCWD, path, O_RDONLY, 0);
  }
  EXPECT_EQ(result, -EFAULT);
}

// ---- Pins ----

class PinsTest : public testing::Test {
 protected:
  GuardedPager& pager_ = GuardedPager::get();
  char* far_ =
      reinterpret_cast<char*>(far_mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ~PinsTest() override { far_munmap(far_, kBytes); }
  void press() {
    for (int i = 0; i < 2; i++) pager_.touch_filler();
  }
  static constexpr size_t kBytes = kMiB;
};

TEST_F(PinsTest, PinnedPagesStayUntilTheEnd) {
  {
    Pins pins(stack_pointer());
    EXPECT_TRUE(pins.add(far_ + kPageSize - 1, 2, true));
    press();
    EXPECT_TRUE(pager_.is_near(far_));
    EXPECT_TRUE(pager_.is_near(far_ + kPageSize));
    EXPECT_EQ(t_guard.pin_count, 1u);
  }
  EXPECT_EQ(t_guard.pin_count, 0u);
  pager_.evict(far_, 2 * kPageSize);
}

TEST_F(PinsTest, NearMemoryAndEmptyRangesAreNotPinned) {
  Pins pins(stack_pointer());
  char near[10];
  EXPECT_TRUE(pins.add(near, sizeof near, true));
  EXPECT_TRUE(pins.add(nullptr, 100, true));
  EXPECT_TRUE(pins.add(far_, 0, true));
  EXPECT_TRUE(pins.add_string("near"));
  EXPECT_EQ(t_guard.pin_count, 0u);
}

TEST_F(PinsTest, UnmappedMemoryIsReported) {
  far_munmap(far_ + kPageSize, kPageSize);
  Pins pins(stack_pointer());
  EXPECT_TRUE(pins.add(far_, kPageSize, true));
  EXPECT_FALSE(pins.add(far_, kPageSize + 1, true));
  EXPECT_FALSE(pins.add(far_ + kPageSize, 1, true));
  memset(far_, 'x', kPageSize);  // no terminator in this page
  EXPECT_FALSE(pins.add_string(far_ + 100));
  far_[kPageSize - 1] = 0;
  EXPECT_TRUE(pins.add_string(far_ + 100));
}

TEST_F(PinsTest, AnAddressAtTheEndOfFarSpaceIsCutThere) {
  Pins pins(stack_pointer());
  auto* end = reinterpret_cast<char*>(pager_->base()) + pager_->space_bytes();
  EXPECT_FALSE(pins.add(end - 1, ~uint64_t{0}, true));  // it belongs to no mapping; and the sum does not overflow
  EXPECT_TRUE(pins.add(end, 1, true));                  // beyond: not far
}

TEST_F(PinsTest, StringsArePinnedUpToTheirEnd) {
  memset(far_, 'x', 3 * kPageSize);
  far_[2 * kPageSize + 5] = 0;
  pager_.evict(far_, 4 * kPageSize);
  Pins pins(stack_pointer());
  EXPECT_TRUE(pins.add_string(far_ + 10));
  press();
  for (size_t page = 0; page < 3; page++) EXPECT_TRUE(pager_.is_near(far_ + page * kPageSize)) << page;
  EXPECT_FALSE(pager_.is_near(far_ + 3 * kPageSize));
}

TEST_F(PinsTest, CallsNest) {
  Pins outer(stack_pointer());
  EXPECT_TRUE(outer.add(far_, 1, true));
  {
    Pins inner(stack_pointer());
    EXPECT_TRUE(inner.add(far_, 1, true));
    EXPECT_TRUE(inner.add(far_ + kPageSize, 1, true));
    EXPECT_EQ(t_guard.pin_count, 3u);
  }
  EXPECT_EQ(t_guard.pin_count, 1u);
  press();
  EXPECT_TRUE(pager_.is_near(far_));  // the outer call's
  pager_.evict(far_ + kPageSize, 1);
}

// A signal handler jumped out of a call with longjmp: the record of that call is of a stack frame below ours.
TEST_F(PinsTest, PinsOfCallsLeftByLongjmpAreDropped) {
  uint64_t sp = stack_pointer();
  alignas(Pins) char storage[sizeof(Pins)];
  auto* jumped = new (storage) Pins(sp - 1000);  // and never destroyed
  EXPECT_TRUE(jumped->add(far_, 1, true));
  {
    Pins deeper(sp - 2000);  // of a handler within that call
    EXPECT_EQ(t_guard.pin_count, 1u);
  }
  Pins next(sp);
  EXPECT_EQ(t_guard.pin_count, 0u);
  pager_.evict(far_, 1);
}

TEST_F(PinsTest, OnTheAlternateStackNoPinIsStale) {
  uint64_t sp = stack_pointer();
  Pins pins(sp - 1000);
  EXPECT_TRUE(pins.add(far_, 1, true));
  t_guard.stack_low = sp - 10;
  t_guard.stack_high = sp + 10;
  {
    Pins handler(sp);  // higher, but of another stack
    EXPECT_EQ(t_guard.pin_count, 1u);
  }
  t_guard.stack_low = t_guard.stack_high = 0;
}

TEST_F(PinsTest, WithoutRoomForRecordsPagesAreFetchedButNotPinned) {
  for (size_t i = 0; i < 70; i++) far_[i * kPageSize] = 1;
  pager_.evict(far_, 70 * kPageSize);
  {
    Pins pins(stack_pointer());
    for (size_t i = 0; i < 70; i++) {
      EXPECT_TRUE(pins.add(far_ + i * kPageSize, 1, false));
      EXPECT_TRUE(pager_.is_near(far_ + i * kPageSize));
    }
    EXPECT_EQ(t_guard.pin_count, +GuardThread::kMaxPins);
  }
  EXPECT_EQ(t_guard.pin_count, 0u);
  pager_.evict(far_, 70 * kPageSize);  // nothing stayed pinned
}

// ---- Large transfers are split ----

class LargeTransferTest : public PinsTest {
 protected:
  template <typename... Args>
  long call(long number, Args... args) {
    Call c = {number, {}, stack_pointer()};
    size_t i = 0;
    ((c.arg[i++] = (long)(args)), ...);
    return guarded_call(c);
  }
  void fill() {
    for (size_t i = 0; i < kBytes; i++) far_[i] = static_cast<char>(i * 7 + i / 4096);
  }
  std::string expected(size_t from, size_t bytes) {
    std::string out(bytes, 0);
    for (size_t i = 0; i < bytes; i++) out[i] = static_cast<char>((from + i) * 7 + (from + i) / 4096);
    return out;
  }
};

TEST_F(LargeTransferTest, OneCallNeverPinsMuch) {
  EXPECT_EQ(pin_limit(), pager_->near_limit_bytes() / 32);
  EXPECT_LT(pin_limit(), kBytes);  // otherwise nothing is split here
  EXPECT_EQ(pin_limit() % kPageSize, 0u);
}

TEST_F(LargeTransferTest, FilesAreWrittenAndReadWhole) {
  int fd = temporary_file();
  fill();
  pager_.evict(far_, kBytes);
  EXPECT_EQ(call(SYS_write, fd, far_ + 1, kBytes - 1), static_cast<long>(kBytes - 1));
  std::string got(kBytes - 1, 0);
  ASSERT_EQ(::pread(fd, got.data(), got.size(), 0), static_cast<ssize_t>(kBytes - 1));
  EXPECT_EQ(got, expected(1, kBytes - 1));
  memset(far_, 0, kBytes);
  pager_.evict(far_, kBytes);
  EXPECT_EQ(call(SYS_pread64, fd, far_, kBytes, 100), static_cast<long>(kBytes - 101));  // up to the file's end
  EXPECT_EQ(std::string(far_, kBytes - 101), expected(101, kBytes - 101));
  EXPECT_EQ(far_[kBytes - 101], 0);
  EXPECT_EQ(call(SYS_pwrite64, fd, far_, kBytes - 101, 5000), static_cast<long>(kBytes - 101));
  ASSERT_EQ(::pread(fd, got.data(), got.size(), 5000), static_cast<ssize_t>(kBytes - 101));
  EXPECT_EQ(got.substr(0, kBytes - 101), expected(101, kBytes - 101));
  os::close(fd);
}

TEST_F(LargeTransferTest, LongVectorsAreWrittenAndReadWhole) {
  constexpr size_t kPieces = 300, kStep = 3400;
  int fd = temporary_file();
  fill();
  std::vector<iovec> pieces;
  size_t total = 0;
  for (size_t i = 0; i < kPieces; i++) {
    size_t bytes = i % 5 == 0 ? 0 : 1 + i * 11;  // some are empty
    pieces.push_back({far_ + i * kStep, bytes});
    total += bytes;
  }
  pager_.evict(far_, kBytes);
  EXPECT_EQ(call(SYS_writev, fd, pieces.data(), kPieces), static_cast<long>(total));
  std::string all;
  for (size_t i = 0; i < kPieces; i++) all += expected(i * kStep, pieces[i].iov_len);
  std::string got(total, 0);
  ASSERT_EQ(::pread(fd, got.data(), total, 0), static_cast<ssize_t>(total));
  EXPECT_EQ(got, all);
  memset(far_, 0, kBytes);
  EXPECT_EQ(call(SYS_preadv, fd, pieces.data(), kPieces, 0, 0), static_cast<long>(total));
  for (size_t i = 0; i < kPieces; i++) {
    ASSERT_EQ(std::string(far_ + i * kStep, pieces[i].iov_len), expected(i * kStep, pieces[i].iov_len)) << i;
  }
  os::close(fd);
}

TEST_F(LargeTransferTest, VectorsAreWrittenAtTheirOffset) {
  int fd = temporary_file();
  fill();
  iovec pieces[] = {{far_ + 10, kBytes / 2}, {far_, 3}, {far_ + kBytes / 2, kBytes / 2}};
  EXPECT_EQ(call(SYS_pwritev, fd, pieces, 3, 777, 0), static_cast<long>(kBytes + 3));
  std::string got(kBytes + 3, 0);
  ASSERT_EQ(::pread(fd, got.data(), got.size(), 777), static_cast<ssize_t>(kBytes + 3));
  std::string all = expected(10, kBytes / 2) + expected(0, 3) + expected(kBytes / 2, kBytes / 2);
  EXPECT_EQ(got, all);
  ASSERT_EQ(::lseek(fd, 99, SEEK_SET), 99);
  EXPECT_EQ(call(SYS_pwritev2, fd, pieces, 3, -1, -1, 0), static_cast<long>(kBytes + 3));  // at the file's position
  EXPECT_EQ(::lseek(fd, 0, SEEK_CUR), static_cast<off_t>(99 + kBytes + 3));
  ASSERT_EQ(::pread(fd, got.data(), got.size(), 99), static_cast<ssize_t>(kBytes + 3));
  EXPECT_EQ(got, all);
  os::close(fd);
}

TEST_F(LargeTransferTest, MoreThanMayBeNearIsMoved) {
  size_t bytes = 2 * pager_->near_limit_bytes();
  char* large =
      reinterpret_cast<char*>(far_mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  for (size_t i = 0; i < bytes; i += kPageSize) large[i] = static_cast<char>(1 + i / kPageSize % 100);
  int fd = temporary_file();
  EXPECT_EQ(call(SYS_write, fd, large, bytes), static_cast<long>(bytes));
  memset(large, 0, bytes);
  iovec pieces[] = {{large, bytes / 2}, {large + bytes / 2, bytes / 2}};
  EXPECT_EQ(call(SYS_preadv, fd, pieces, 2, 0, 0), static_cast<long>(bytes));
  for (size_t i = 0; i < bytes; i += kPageSize) ASSERT_EQ(large[i], static_cast<char>(1 + i / kPageSize % 100)) << i;
  os::close(fd);
  far_munmap(large, bytes);
}

TEST_F(LargeTransferTest, AReadOfAPipeReturnsWhatThereIsAndDoesNotBlock) {
  int fds[2];
  ASSERT_EQ(os::pipe(fds, 0), 0);
  ASSERT_GE(::fcntl(fds[1], F_SETPIPE_SZ, 1024 * 1024), 0);
  size_t limit = pin_limit();
  fill();
  ASSERT_EQ(os::write(fds[1], expected(0, limit).data(), limit), static_cast<ssize_t>(limit));
  memset(far_, 0, kBytes);
  EXPECT_EQ(call(SYS_read, fds[0], far_, kBytes), static_cast<long>(limit));  // a second read would block forever
  EXPECT_EQ(std::string(far_, limit), expected(0, limit));
  os::close(fds[0]);
  os::close(fds[1]);
}

TEST_F(LargeTransferTest, AWriteThatWouldBlockReturnsWhatWasWritten) {
  int fds[2];
  ASSERT_EQ(os::pipe(fds, O_NONBLOCK), 0);
  long room = ::fcntl(fds[1], F_SETPIPE_SZ, 512 * 1024);
  ASSERT_GT(room, static_cast<long>(pin_limit()));
  ASSERT_LT(room, static_cast<long>(kBytes));
  EXPECT_EQ(call(SYS_write, fds[1], far_, kBytes), room);
  EXPECT_EQ(call(SYS_write, fds[1], far_, kBytes), -EAGAIN);
  os::close(fds[0]);
  EXPECT_EQ(call(SYS_read, fds[0], far_, kBytes), -EBADF);
  os::close(fds[1]);
}

TEST_F(LargeTransferTest, AnErrorAfterTheFirstPartEndsWithTheBytesMoved) {
  int fd = temporary_file();
  far_munmap(far_ + kBytes / 2, kPageSize);
  long moved = call(SYS_write, fd, far_, kBytes);
  EXPECT_GT(moved, 0);
  EXPECT_LE(moved, static_cast<long>(kBytes / 2));  // what is not mapped is not written
  EXPECT_EQ(::lseek(fd, 0, SEEK_CUR), moved);
  EXPECT_EQ(call(SYS_write, fd, far_ + kBytes / 2, 10), -EFAULT);
  os::close(fd);
}

TEST_F(LargeTransferTest, OnlyMsgWaitallWaitsForAllOfAStream) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  std::thread writer([&] {
    std::string all = expected(0, kBytes);
    for (size_t at = 0; at < all.size();) {
      ssize_t n = os::write(pair[0], all.data() + at, all.size() - at);
      if (n <= 0) return;
      at += static_cast<size_t>(n);
    }
  });
  EXPECT_EQ(call(SYS_recvfrom, pair[1], far_, kBytes, MSG_WAITALL, 0, 0), static_cast<long>(kBytes));
  writer.join();
  EXPECT_EQ(std::string(far_, kBytes), expected(0, kBytes));
  // As much as one part takes: without the flag a second one would sleep for ever.
  auto limit = static_cast<ssize_t>(pin_limit());
  int room = static_cast<int>(2 * limit);
  ASSERT_EQ(::setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
  ASSERT_EQ(::send(pair[0], std::string(pin_limit(), 'x').data(), pin_limit(), MSG_DONTWAIT), limit);
  EXPECT_EQ(call(SYS_recvfrom, pair[1], far_, kBytes, 0, 0, 0), limit);
  ASSERT_EQ(os::write(pair[0], "abc", 3), 3);
  EXPECT_EQ(call(SYS_recvfrom, pair[1], far_, kBytes, 0, 0, 0), 3);
  os::close(pair[0]);
  os::close(pair[1]);
}

TEST_F(LargeTransferTest, AMessageWithTooManyPiecesIsRefused) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  msghdr header = {};
  header.msg_iov = reinterpret_cast<iovec*>(far_);
  header.msg_iovlen = IOV_MAX + 1;
  EXPECT_EQ(call(SYS_sendmsg, pair[0], &header, 0), -EMSGSIZE);
  EXPECT_EQ(call(SYS_recvmsg, pair[0], &header, 0), -EMSGSIZE);
  os::close(pair[0]);
  os::close(pair[1]);
}

// ---- Calls that are not in the table ----

TEST_F(LargeTransferTest, UnknownCallsGetTheirArgumentsPinned) {
  strcpy(far_ + kPageSize - 2, "/dev/null");
  pager_.evict(far_, 2 * kPageSize);
  // fsopen and the like are not described; this number belongs to no call at all.
  EXPECT_EQ(call(100'000, far_, far_ + kPageSize - 2, ~0L, 0, 0, 0), -ENOSYS);
  EXPECT_EQ(call(-5, far_), -ENOSYS);
  EXPECT_TRUE(pager_.is_near(far_));  // it was pinned meanwhile
  EXPECT_EQ(t_guard.pin_count, 0u);
}

TEST_F(LargeTransferTest, UnmappedMemoryGivesTheKernelsError) {
  far_munmap(far_, 4 * kPageSize);
  EXPECT_EQ(call(SYS_openat, AT_FDCWD, far_, O_RDONLY, 0), -EFAULT);
  EXPECT_EQ(call(SYS_uname, far_), -EFAULT);
  EXPECT_EQ(call(SYS_uname, far_ + 4 * kPageSize - 1), -EFAULT);  // its rest is mapped
  EXPECT_EQ(call(SYS_uname, 0), -EFAULT);
  EXPECT_EQ(t_guard.pin_count, 0u);
}

TEST_F(LargeTransferTest, AFutexThatCannotBeReadIsAnError) {
  timespec at_once = {0, 0};
  far_munmap(far_, kPageSize);
  char* mapped = far_ + kPageSize;
  EXPECT_EQ(call(SYS_futex, far_, FUTEX_WAIT_PRIVATE, 0, &at_once, 0, 0), -EFAULT);
  EXPECT_EQ(call(SYS_futex, mapped, FUTEX_WAKE_OP_PRIVATE, 1, 1, far_, 0), -EFAULT);
  EXPECT_EQ(call(SYS_futex, mapped, FUTEX_WAIT_PRIVATE, 0, 1 /* no address */, 0, 0), -EFAULT);
  EXPECT_EQ(call(SYS_futex, mapped, FUTEX_WAIT_PRIVATE, 0, &at_once, 0, 0), -ETIMEDOUT);
  ASSERT_EQ(far_mprotect(mapped, kPageSize, PROT_READ), 0);
  pager_.evict(mapped, kPageSize);
  EXPECT_EQ(call(SYS_futex, mapped, FUTEX_WAIT_PRIVATE, 1, &at_once, 0, 0), -EAGAIN);  // waiting only reads
}

TEST_F(LargeTransferTest, ReadOnlyMemoryIsReadAndNotWritten) {
  strcpy(far_, "/dev/null");
  ASSERT_EQ(far_mprotect(far_, kPageSize, PROT_READ), 0);
  pager_.evict(far_, kPageSize);
  long fd = call(SYS_openat, AT_FDCWD, far_, O_RDONLY, 0);
  EXPECT_GE(fd, 0);
  os::close(static_cast<int>(fd));
  EXPECT_EQ(call(SYS_uname, far_), -EFAULT);
  EXPECT_STREQ(far_, "/dev/null");
}

}  // namespace
}  // namespace farside::preload
