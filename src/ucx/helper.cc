#include "ucx/helper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <string_view>

#include "base/os.h"
#include "ucx/helper_protocol.h"
#include "ucx/transports.h"

namespace farside::ucx {
namespace {

constexpr int kSurveyMs = 10'000;
constexpr size_t kSurveyBytes = 16 * 1024;

// Secrets in the environment are not for peers of UCX.
std::vector<char*> environment_of_helper() {
  std::vector<char*> kept;
  for (char** at = environ; *at; at++) {
    std::string_view variable(*at);
    if (variable.starts_with("UCX_") || variable.starts_with("LD_LIBRARY_PATH=")) kept.push_back(*at);
  }
  kept.push_back(nullptr);
  return kept;
}

// Signals of the terminal are for the owner: the process has a group of its own, and no signal is blocked in it.
int spawn(const std::string& program, std::vector<std::string> arguments, int control, int given, pid_t* pid) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none;
  sigemptyset(&none);
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, control, kControlFd);
  if (given >= 0) posix_spawn_file_actions_adddup2(&files, given, kGivenFd);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setsigmask(&attributes, &none);
  int error = posix_spawn(pid, program.c_str(), &files, &attributes, argv.data(), environment_of_helper().data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

// A duplicate with a number that spawn() does not overwrite.
int duplicate_above(int fd) { return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, kGivenFd + 1); }

Survey parse(const std::string& text) {
  Survey found;
  std::istringstream lines(text);
  for (std::string key, value; lines >> key >> value;) {
    if (key == "version") found.version = value;
    if (key == "card") found.has_card = value == "yes";
    if (key == "on-demand") found.pages_on_demand = value == "yes";
    if (key == "transport") found.transports.push_back(value);
  }
  return found;
}

Status no_answer(const Settings& settings) {
  return Status::error(EIO, "{} ended without an answer; run it with UCX_LOG_LEVEL=debug", settings.program);
}

}  // namespace

Status Helper::start(const Settings& settings, const char* mode, const std::string& argument, int given_fd) {
  stop();
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
    return Status::error(errno, "no file descriptors for a process of UCX; raise the limit on open files (ulimit -n)");
  int control = duplicate_above(ends[1]), given = duplicate_above(given_fd);
  pid_t pid = -1;
  int error =
      control < 0 || (given_fd >= 0 && given < 0)
          ? EMFILE
          : spawn(settings.program, {settings.program, mode, settings.transports, argument}, control, given, &pid);
  for (int fd : {ends[1], control, given}) {
    if (fd >= 0) os::close(fd);
  }
  if (error == 0) {
    pid_ = pid;
    control_ = ends[0];
    return {};
  }
  os::close(ends[0]);
  return Status::error(error, "cannot start {}: {}; install Farside again", settings.program, strerror(error));
}

int Helper::send(const void* message, size_t bytes) {
  ssize_t n = ::send(control_, message, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n >= 0) return 0;
  return errno == EAGAIN ? -EAGAIN : -EPIPE;
}

int Helper::receive(void* message, size_t bytes) {
  ssize_t n = recv(control_, message, bytes, MSG_DONTWAIT);
  if (n > 0) return static_cast<int>(n);
  return n < 0 && errno == EAGAIN ? -EAGAIN : -EPIPE;
}

bool Helper::wait(int timeout_ms) {
  pollfd p = {control_, POLLIN, 0};
  return os::poll(&p, 1, timeout_ms) > 0;
}

void Helper::kill() {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

void Helper::stop() {
  if (pid_ <= 0) return;
  kill();
  os::close(control_);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {}
  pid_ = control_ = -1;
}

bool Survey::has_only_cards() const {
  return std::all_of(transports.begin(), transports.end(), [](const std::string& t) { return is_of_card(t); });
}

Status wait_until_ready(Helper* helper, const Settings& settings, int timeout_ms) {
  Ready message;
  int n = helper->wait(timeout_ms) ? helper->receive(&message, sizeof message) : -ETIMEDOUT;
  if (n != sizeof message) return no_answer(settings);
  if (message.error == 0) return {};
  if (message.error == ENOENT)
    return Status::error(ENOENT, "UCX cannot be loaded: {}; install it (Debian: libucx0), or use tcp://", message.text);
  return Status::error(ENODEV, "UCX finds none of the transports '{}' here ({}); choose others with --tune ucx=LIST",
                       settings.transports, message.text);
}

Result<Survey> survey(const Settings& settings) {
  Helper helper;
  if (Status s = helper.start(settings, "survey", "-", -1); !s.ok()) return s;
  if (Status s = wait_until_ready(&helper, settings, kSurveyMs); !s.ok()) return s;
  std::string text(kSurveyBytes, 0);
  int n = helper.wait(kSurveyMs) ? helper.receive(text.data(), text.size()) : -ETIMEDOUT;
  if (n <= 0) return no_answer(settings);
  text.resize(static_cast<size_t>(n));
  return parse(text);
}

}  // namespace farside::ucx
