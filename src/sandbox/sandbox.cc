#include "sandbox/sandbox.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/os.h"

namespace farside::sandbox {
namespace {

constexpr int kTickMs = 50, kIdleTickMs = 200;
constexpr uint64_t kFreelyGivenBack = 64;  // then a pause: a function that does so on purpose takes no processor time
constexpr useconds_t kPauseUs = 1000;
constexpr uint64_t kPollNs = 60'000;  // about what it takes to wake a thread where cores are idle
constexpr unsigned kNobody = 65534;
constexpr int kSpareFds = 64;  // above those of the host

// Closes at the end of its scope.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

// A second open file of the region, which cannot become writable by mprotect.
int open_read_only(int fd) {
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  return open(path, O_RDONLY | O_CLOEXEC);
}

bool write_file(pid_t pid, const char* name, const std::string& text) {
  std::string path = "/proc/" + std::to_string(pid) + "/" + name;
  Descriptor file{open(path.c_str(), O_WRONLY | O_CLOEXEC)};
  return file.fd >= 0 && write(file.fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

std::string mapping_of(unsigned own) {
  return own == 0 ? "0 0 1\n1 " + std::to_string(kNobody) + " 1\n" : "0 " + std::to_string(own) + " 1\n";
}

bool make_pair(int* ours, int* theirs) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return false;
  *ours = pair[0];
  *theirs = pair[1];
  return true;
}

// What the new process executes: no memory is allocated in it, since other threads of the server may hold locks.
struct Start {
  const int* fds;  // at the numbers 0, 1, ...
  int count;
  const char* program;
  char* const* arguments;
};

[[noreturn]] void become_host(const Start& start) {
  char ready;
  if (os::recv(start.fds[kControlFd], &ready, 1, 0) != 1) os::exit_group(1);  // the user is mapped
  int moved[kFirstObjectFd + wire::kMaxCallObjects];
  for (int i = 0; i < start.count; i++)
    moved[i] = static_cast<int>(os::call(SYS_fcntl, start.fds[i], F_DUPFD, kSpareFds));
  for (int i = 0; i < start.count; i++) os::call(SYS_dup3, moved[i], i, 0);
  os::call(SYS_close_range, start.count, ~0U, 0);
  constexpr os::SignalSet kNone = 0;
  os::sigprocmask(SIG_SETMASK, &kNone, nullptr);
  // Not a session of its own, which the kernel would schedule as a group: sched_yield() is for threads of one group.
  os::call(SYS_setpgid, 0, 0);
  // Libraries far from where the client's far memory usually is.
  os::call(SYS_personality, ADDR_COMPAT_LAYOUT);
  char* const environment[] = {nullptr};
  os::call(SYS_execve, start.program, start.arguments, environment);
  os::exit_group(127);
}

// By errno.
Status cannot_start() { return Status::error(errno, "cannot start a process for functions: {}", strerror(errno)); }

}  // namespace

Result<std::unique_ptr<Sandbox>> Sandbox::start(const Setup& setup, const std::function<bool()>& is_abandoned) {
  std::unique_ptr<Sandbox> sandbox(new Sandbox(setup));
  if (Status s = sandbox->spawn(setup); !s.ok()) return s;
  if (Status s = sandbox->load(setup, is_abandoned); !s.ok()) return s;
  return sandbox;
}

Sandbox::~Sandbox() {
  end();
  for (int fd : {control_, replies_, state_fd_}) {
    if (fd >= 0) close(fd);
  }
  if (state_) munmap(state_, sizeof *state_);
}

Status Sandbox::map_state() {
  state_fd_ = os::memfd_create("farside-calls", 0);
  if (state_fd_ < 0 || ftruncate(state_fd_, sizeof *state_) != 0) return cannot_start();
  void* at = mmap(nullptr, sizeof *state_, PROT_READ | PROT_WRITE, MAP_SHARED, state_fd_, 0);
  if (at == MAP_FAILED) return cannot_start();
  state_ = static_cast<HostState*>(at);
  return {};
}

Status Sandbox::spawn(const Setup& setup) {
  bool is_direct = setup.connection_fd >= 0;
  Descriptor control, connection;
  if (Status s = map_state(); !s.ok()) return s;
  if (!make_pair(&control_, &control.fd) || (!is_direct && !make_pair(&replies_, &connection.fd)))
    return cannot_start();
  Descriptor null{open("/dev/null", O_RDWR | O_CLOEXEC)}, read_only{open_read_only(setup.region_fd)};
  if (null.fd < 0 || read_only.fd < 0)
    return Status::error(errno, "cannot start a process for functions: {}; is /proc mounted?", strerror(errno));
  int client = is_direct ? setup.connection_fd : connection.fd;
  std::vector<int> fds = {null.fd, null.fd, null.fd, control.fd, read_only.fd, setup.region_fd, client, state_fd_};
  static_assert(kFirstObjectFd == 8);
  fds.insert(fds.end(), setup.objects.begin(), setup.objects.end());
  std::string texts[] = {setup.program,
                         std::to_string(setup.objects.size()),
                         std::to_string(setup.limits.memory),
                         std::to_string(setup.base),
                         geteuid() == 0 ? "1" : "0",
                         is_direct ? "direct" : "relay"};
  char* arguments[7] = {};
  std::transform(std::begin(texts), std::end(texts), arguments, [](std::string& text) { return text.data(); });
  Start start = {fds.data(), static_cast<int>(fds.size()), setup.program.c_str(), arguments};
  constexpr long kNamespaces =
      CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
  long pid = os::call(SYS_clone, kNamespaces, nullptr, nullptr, nullptr, nullptr);
  if (pid == 0) become_host(start);
  if (pid < 0)
    return Status::error(static_cast<int>(-pid), "cannot make namespaces for a process for functions: {}",
                         strerror(static_cast<int>(-pid)));
  pid_ = static_cast<pid_t>(pid);
  if (Status s = map_user(); !s.ok()) return s;
  char ready = 0;
  os::send(control_, &ready, 1, MSG_NOSIGNAL);
  for (int fd : {control_, replies_}) {
    if (fd >= 0) fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  return {};
}

Status Sandbox::map_user() const {
  bool mapped = write_file(pid_, "setgroups", "deny") && write_file(pid_, "uid_map", mapping_of(geteuid())) &&
                write_file(pid_, "gid_map", mapping_of(getegid() == 0 && geteuid() == 0 ? 0 : getegid()));
  if (mapped) return {};
  return Status::error(errno, "cannot map the user of a process for functions: {}", strerror(errno));
}

// The first reply says whether the objects were loaded.
Status Sandbox::load(const Setup& setup, const std::function<bool()>& is_abandoned) {
  HostReply reply;
  char text[256] = {};
  begin_limits();
  int r = receive(control_, reinterpret_cast<std::byte*>(&reply), sizeof reply, is_abandoned);
  if (r == 0 && reply.bytes >= sizeof text) r = -EBADMSG;
  if (r == 0) r = receive(control_, reinterpret_cast<std::byte*>(text), reply.bytes, is_abandoned);
  if (r < 0) {
    int code;
    describe_end(r, &code, text, sizeof text);
    return Status::error(code, "cannot start a process for functions: while it was loaded, {}", text);
  }
  if (reply.status < 0) return Status::error(-std::max(reply.status, -4095), "{}", static_cast<const char*>(text));
  return set_limits(setup);
}

// What the process and its objects take is not counted, but no more than they could take while they were loaded:
// constructors that allocate leave less to functions.
Status Sandbox::set_limits(const Setup& setup) const {
  char text[256];
  std::string path = "/proc/" + std::to_string(pid_) + "/statm";
  Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  ssize_t n = file.fd < 0 ? -1 : read(file.fd, text, sizeof text - 1);
  if (n <= 0) return cannot_start();
  text[n] = 0;
  uint64_t all = 0, data = 0;  // pages: of the process, and of its private writable memory and stack
  if (sscanf(text, "%lu %*u %*u %*u %*u %lu", &all, &data) != 2)
    return Status::error(EINVAL, "cannot start a process for functions: {} has an unknown format", path);
  // Ranges are not memory of the process, but the addresses that it may map include those of a call, of earlier calls,
  // and a place to move them to.
  struct stat region = {};
  fstat(setup.region_fd, &region);
  rlim_t addresses = all * 4096 + limits_.memory + kParkedAddresses + 2 * static_cast<rlim_t>(region.st_size);
  rlimit loading = {};
  if (prlimit(pid_, RLIMIT_DATA, nullptr, &loading) != 0) return cannot_start();
  rlim_t most = std::min<rlim_t>(loading.rlim_cur, data * 4096 + limits_.memory);
  rlimit data_limit = {most, most};
  rlimit address_limit = {addresses, addresses};
  bool limited =
      prlimit(pid_, RLIMIT_DATA, &data_limit, nullptr) == 0 && prlimit(pid_, RLIMIT_AS, &address_limit, nullptr) == 0;
  return limited ? Status() : cannot_start();
}

bool Sandbox::call(wire::Bytes frame, const std::function<bool()>& is_abandoned, std::byte* reply) {
  begin_limits();
  int r = hand_over(frame, is_abandoned);
  if (r == 0) r = receive_reply(reply, is_abandoned);
  if (r < 0) store_end(r, reply);
  return r == 0;
}

int Sandbox::hand_over(wire::Bytes bytes, const std::function<bool()>& is_abandoned) {
  Handover head = {bytes.size()};
  if (int r = send(wire::bytes_of(head), is_abandoned); r < 0) return r;
  return send(bytes, is_abandoned);
}

int Sandbox::receive_reply(std::byte* reply, const std::function<bool()>& is_abandoned) {
  wire::FrameHeader header;
  int r = receive(replies_, reinterpret_cast<std::byte*>(&header), sizeof header, is_abandoned);
  if (r < 0) return r;
  if (wire::check_reply_header(header) < 0 || header.payload_bytes > sizeof(wire::CallReply) + wire::kMaxCallBytes)
    return -EBADMSG;
  if (r = receive(replies_, reply, header.payload_bytes, is_abandoned); r < 0) return r;
  wire::CallReply decoded;
  return wire::decode_call_reply({reply, header.payload_bytes}, &decoded) < 0 ? -EBADMSG : 0;
}

Sandbox::Served Sandbox::serve(std::vector<std::byte>* received, const std::function<bool()>& is_abandoned,
                               uint64_t* request, std::byte* reply) {
  begin_limits();
  int r = hand_over(*received, is_abandoned);
  if (r == 0) r = watch(is_abandoned);
  if (r == 0) r = take_back(received, is_abandoned);
  if (r == 0) return Served::kGivenBack;
  // All that it stored before its end is visible: the socket has reported the end.
  HostPhase phase = state_->phase;
  *request = state_->request;
  store_end(r, reply);
  return phase == HostPhase::kExecutes ? Served::kFailed : Served::kLost;
}

// Until the process gives the connection back or ends.
int Sandbox::watch(const std::function<bool()>& is_abandoned) {
  for (uint64_t known = calls();;) {
    bool is_idle = state_->phase == HostPhase::kWaits && calls() == known;
    pollfd control = {control_, POLLIN, 0};
    if (poll(&control, 1, is_idle ? kIdleTickMs : kTickMs) != 0) return 0;
    if (is_abandoned()) return -ECANCELED;
    bool is_new = calls() != known;
    if (is_new || state_->phase == HostPhase::kWaits) deadline_ns_ = now_ns() + limits_.wall_ns;
    if (is_new) begin_limits();
    known = calls();
    if (now_ns() > deadline_ns_ || cpu_ns() > cpu_limit_ns_) return -ETIME;
  }
}

int Sandbox::take_back(std::vector<std::byte>* received, const std::function<bool()>& is_abandoned) {
  Handover head;
  begin_limits();
  int r = receive(control_, reinterpret_cast<std::byte*>(&head), sizeof head, is_abandoned);
  if (r == 0 && head.bytes > kMaxHandover) r = -EBADMSG;
  if (r < 0) return r;
  received->resize(head.bytes);
  if (++given_back_ > kFreelyGivenBack) usleep(kPauseUs);
  return receive(control_, received->data(), head.bytes, is_abandoned);
}

// Ends the process, and stores why as the reply to its call.
void Sandbox::store_end(int error, std::byte* reply) {
  int code;
  auto* text = reinterpret_cast<char*>(reply + sizeof(wire::CallReply));
  auto bytes = static_cast<uint32_t>(describe_end(error, &code, text, wire::kMaxCallBytes));
  wire::CallReply header = {-code, 1, bytes, 0};
  memcpy(reply, &header, sizeof header);
}

int Sandbox::send(wire::Bytes bytes, const std::function<bool()>& is_abandoned) {
  while (!bytes.empty()) {
    ssize_t n = ::send(control_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) bytes = bytes.subspan(static_cast<size_t>(n));
    else if (errno != EAGAIN && errno != EINTR) return -ECONNRESET;
    else if (int r = wait_ready(control_, POLLOUT, is_abandoned); r < 0) return r;
  }
  return 0;
}

int Sandbox::receive(int fd, std::byte* to, size_t bytes, const std::function<bool()>& is_abandoned) {
  while (bytes > 0) {
    ssize_t n = ::recv(fd, to, bytes, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return -ECONNRESET;
    if (n > 0) {
      to += n;
      bytes -= static_cast<size_t>(n);
    } else if (int r = wait_ready(fd, POLLIN, is_abandoned); r < 0) {
      return r;
    }
  }
  return 0;
}

// 0: ready, or a signal came; -ETIME, -ECANCELED: the limit is reached, or the caller gives up.
int Sandbox::wait_ready(int fd, short events, const std::function<bool()>& is_abandoned) {
  for (uint64_t start = now_ns(); now_ns() - start < kPollNs && !core_.is_crowded();) {
    pollfd poll_fd = {fd, events, 0};
    if (poll(&poll_fd, 1, 0) != 0) return 0;
    core_.yield();  // the process may need this core
  }
  for (;;) {
    pollfd poll_fd = {fd, events, 0};
    if (poll(&poll_fd, 1, kTickMs) != 0) return 0;
    if (now_ns() > deadline_ns_ || cpu_ns() > cpu_limit_ns_) return -ETIME;
    if (is_abandoned()) return -ECANCELED;
  }
}

uint64_t Sandbox::cpu_ns() const {
  clockid_t clock;
  timespec time;
  if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

void Sandbox::begin_limits() {
  deadline_ns_ = now_ns() + limits_.wall_ns;
  cpu_limit_ns_ = cpu_ns() + limits_.cpu_ns;
}

// When the process has been waited for, its memory is unmapped: it writes nothing more.
void Sandbox::end() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, &wait_status_, __WALL) < 0 && errno == EINTR) {}
  pid_ = -1;
}

// Ends the process, and says why in a text, whose length is returned.
size_t Sandbox::describe_end(int error, int* code, char* text, size_t room) {
  siginfo_t info = {};
  // It may take a moment from the closed socket to the end.
  if (error == -ECONNRESET) waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT | __WALL);
  end();
  int signal = WIFSIGNALED(wait_status_) ? WTERMSIG(wait_status_) : 0;
  const char* what = "the function ended its process";
  *code = EFAULT;
  if (error == -ETIME) {
    *code = ETIME;
    what = "the function exceeded the server's limit on its time";
  } else if (error == -ECANCELED) {
    *code = ECANCELED;
    what = "the call was given up";
  } else if (error == -EBADMSG) {
    what = "the function damaged its process";
  } else if (signal == SIGSYS) {
    what = "the function made a system call; only memory and time are allowed";
  } else if (signal == SIGKILL) {
    *code = ENOMEM;
    what = "the function's process was killed; the server may be out of memory";
  } else if (signal != 0) {
    int length = snprintf(text, room, "the function crashed (%s); does it access memory outside of its ranges?",
                          sigdescr_np(signal));
    return static_cast<size_t>(length);
  } else if (WEXITSTATUS(wait_status_) == 127) {
    *code = ENOEXEC;
    what = "offload_host could not be executed; install Farside again";
  }
  return static_cast<size_t>(snprintf(text, room, "%s", what));
}

Status check_isolation(const std::string& program) {
  Descriptor memory{os::memfd_create("farside-check", 0)};
  if (os::ftruncate(memory.fd, sizeof(wire::RegionTrailer)) < 0)
    return Status::error(ENOMEM, "there is no memory for a file of {} bytes", sizeof(wire::RegionTrailer));
  Setup setup;
  setup.program = program;
  setup.region_fd = memory.fd;
  auto started = Sandbox::start(setup, [] { return false; });
  if (started.ok()) return {};
  return Status::error(
      started.status().code(),
      "--offload needs user, mount and network namespaces and seccomp, which this machine or container "
      "does not permit: {}",
      started.status().text());
}

}  // namespace farside::sandbox
