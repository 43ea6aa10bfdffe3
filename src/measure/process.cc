#include "measure/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

#include "base/random.h"
#include "server/server.h"

namespace farside {
namespace {

using nlohmann::json;

constexpr int kSignalPollMs = 100;
constexpr int kExitWithParent = 1;

// A child process that writes one text to a pipe.
struct ForkedChild {
  pid_t pid = -1;
  int output = -1;
};

void write_all(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno != EINTR) return;
    if (n > 0) done += static_cast<size_t>(n);
  }
}

// Runs `body` in a child with the write end of the pipe; the child exits when it returns. The kernel kills the child
// when the parent ends.
Result<ForkedChild> fork_child(const std::function<void(int)>& body) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Status::error(errno, "cannot create a pipe: {}", strerror(errno));
  fflush(nullptr);
  pid_t parent = getpid(), pid = fork();
  if (pid < 0) return Status::error(errno, "cannot start a process: {}", strerror(errno));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kExitWithParent);
    close(ends[0]);
    body(ends[1]);
    _exit(0);
  }
  close(ends[1]);
  return ForkedChild{pid, ends[0]};
}

// Reads all that the worker writes until it closes the pipe. False: a stop signal arrived.
bool read_until_closed(int fd, const SignalHold& hold, std::string* text) {
  char buffer[4096];
  while (true) {
    pollfd ready = {fd, POLLIN, 0};
    if (poll(&ready, 1, kSignalPollMs) > 0) {
      ssize_t n = read(fd, buffer, sizeof buffer);
      if (n == 0) return true;
      if (n > 0) text->append(buffer, static_cast<size_t>(n));
    }
    if (stop_signal_within(hold, 0)) return false;
  }
}

int reap(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  return status;
}

Result<json> parse_result(const std::string& text, int wait_status) {
  json result = json::parse(text, nullptr, false);
  if (result.is_discarded()) {
    return Status::error(ECHILD, "the measuring process ended early ({} {}); its message is above",
                         WIFSIGNALED(wait_status) ? "signal" : "status",
                         WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status));
  }
  if (result.contains("error")) return Status::error(result["code"], "{}", result["error"].get<std::string>());
  return result["result"];
}

void serve(const server::ServerConfig& config, const SignalHold& hold, int output) {
  auto server = server::Server::start(config);
  if (!server.ok()) {
    write_all(output, server.status().text());
    return;
  }
  write_all(output, fmt::format(":{}", (*server)->tcp_port()));
  close(output);
  while (!stop_signal_within(hold, kSignalPollMs)) {}
  (*server)->stop();
}

}  // namespace

Result<json> run_in_child(const SignalHold& hold, const std::function<Result<json>()>& work) {
  Result<ForkedChild> worker = fork_child([&](int output) {
    pthread_sigmask(SIG_SETMASK, &hold.before(), nullptr);
    Result<json> made = work();
    json reply =
        made.ok() ? json{{"result", *made}} : json{{"error", made.status().text()}, {"code", made.status().code()}};
    write_all(output, reply.dump());
  });
  if (!worker.ok()) return worker.status();
  std::string text;
  bool complete = read_until_closed(worker->output, hold, &text);
  close(worker->output);
  if (!complete) kill(worker->pid, SIGKILL);
  int status = reap(worker->pid);
  if (!complete) return Status::error(EINTR, "stopped by a signal");
  return parse_result(text, status);
}

Result<std::unique_ptr<ServerProcess>> ServerProcess::start(const SignalHold& hold, uint64_t memory,
                                                            const std::string& token, const ucx::Settings& ucx,
                                                            const std::string& offload_host, unsigned threads) {
  auto directory = PrivateDirectory::create();
  if (!directory.ok()) return directory.status();
  std::unique_ptr<ServerProcess> made(new ServerProcess);
  made->directory_ = std::move(*directory);
  made->token_ = token.empty() ? fmt::format("{:016x}{:016x}", random_u64(), random_u64()) : token;
  server::ServerConfig config;
  config.memory = memory;
  config.workers = threads;
  config.listen = "127.0.0.1:0";
  config.unix_path = made->directory_->file("server.sock");
  config.token = made->token_;
  config.ucx = ucx;
  config.calls.host_program = offload_host;
  Result<ForkedChild> worker = fork_child([&](int output) { serve(config, hold, output); });
  if (!worker.ok()) return worker.status();
  made->pid_ = worker->pid;
  std::string answer;
  bool complete = read_until_closed(worker->output, hold, &answer);
  close(worker->output);
  if (!complete) return Status::error(EINTR, "stopped by a signal");
  if (!answer.starts_with(":")) return Status::error(ECHILD, "cannot start a memory server: {}", answer);
  made->shm_ = "shm://" + config.unix_path;
  made->tcp_ = "tcp://127.0.0.1" + answer;
  return made;
}

uint64_t ServerProcess::cpu_ns() const {
  clockid_t clock;
  timespec used = {};
  if (clock_getcpuclockid(pid_, &clock) == 0) clock_gettime(clock, &used);
  return static_cast<uint64_t>(used.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(used.tv_nsec);
}

ServerProcess::~ServerProcess() {
  if (pid_ < 0) return;
  kill(pid_, SIGTERM);
  reap(pid_);
}

}  // namespace farside
