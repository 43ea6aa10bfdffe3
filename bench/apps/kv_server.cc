// A server like memcached, on fibers: `get` and `set` of memcached's text protocol over a Unix socket, a fiber for each
// connection. It starts memcached_load, which fills it, sends requests of 32 clients, every twentieth a SET, checks
// every response and prints the line of JSON; when that ends, the server ends with its status. An operation is one GET
// or SET. Three hinted lines, in kv_store.h.
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>

#include "kv_store.h"

extern char** environ;

namespace farside::apps {
namespace {

// One client. Requests may be pipelined; the replies are sent together.
class Connection {
 public:
  Connection(Store& store, int fd) : store_(store), fd_(fd) {}
  ~Connection() { farside_fiber_close(fd_); }

  void serve() {
    for (;;) {
      ssize_t n = farside_fiber_read(fd_, in_ + filled_, sizeof in_ - filled_);
      if (n <= 0) return;
      filled_ += static_cast<size_t>(n);
      size_t used = 0;
      while (size_t one = handle({in_ + used, filled_ - used})) used += one;
      if (is_bad_ || (used == 0 && filled_ == sizeof in_)) return;
      filled_ -= used;
      memmove(in_, in_ + used, filled_);
      if (!flush()) return;
    }
  }

 private:
  // Handles the first request of the text and returns its bytes; 0: it is incomplete, or invalid.
  size_t handle(std::string_view text) {
    size_t line_end = text.find("\r\n");
    if (line_end == text.npos) return 0;
    std::string_view line = text.substr(0, line_end);
    if (line.starts_with("get ")) return get(line.substr(4)), line_end + 2;
    if (line.starts_with("set ")) return set(line.substr(4), text.substr(line_end + 2), line_end + 2);
    reply("ERROR\r\n");
    return line_end + 2;
  }

  void get(std::string_view key) {
    char value[Store::kMaxValue], head[64 + Store::kMaxKey];
    int bytes = key.size() <= Store::kMaxKey ? store_.get(key, value) : -1;
    if (bytes >= 0) {
      int n = snprintf(head, sizeof head, "VALUE %.*s 0 %d\r\n", static_cast<int>(key.size()), key.data(), bytes);
      reply({head, static_cast<size_t>(n)});
      reply({value, static_cast<size_t>(bytes)});
      reply("\r\n");
    }
    reply("END\r\n");
  }

  // "key flags lifetime bytes", then the value; flags and lifetime are ignored.
  size_t set(std::string_view words, std::string_view rest, size_t head_bytes) {
    size_t key_end = words.find(' '), length_at = words.rfind(' ');
    size_t bytes = 0;
    const char* end = words.data() + words.size();
    bool is_good = key_end != words.npos && key_end <= Store::kMaxKey &&
                   std::from_chars(words.data() + length_at + 1, end, bytes).ptr == end && bytes <= Store::kMaxValue;
    if (!is_good) {
      reply("CLIENT_ERROR bad command line\r\n");
      flush();
      is_bad_ = true;
      return 0;
    }
    if (rest.size() < bytes + 2) return 0;
    bool stored = store_.set(words.substr(0, key_end), rest.substr(0, bytes));
    reply(stored ? "STORED\r\n" : "SERVER_ERROR out of memory storing object\r\n");
    return head_bytes + bytes + 2;
  }

  void reply(std::string_view text) {
    if (out_bytes_ + text.size() > sizeof out_) flush();
    memcpy(out_ + out_bytes_, text.data(), text.size());
    out_bytes_ += text.size();
  }
  bool flush() {
    bool sent = farside_fiber_write(fd_, out_, out_bytes_) == static_cast<ssize_t>(out_bytes_);
    out_bytes_ = 0;
    return sent;
  }

  Store& store_;
  int fd_;
  bool is_bad_ = false;
  size_t filled_ = 0, out_bytes_ = 0;
  char in_[16384], out_[16384];
};

[[noreturn]] void fail(const char* what) {
  perror(what);
  exit(1);
}

int listen_at(const std::string& path) {
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {AF_UNIX, {}};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path.c_str());
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) < 0 || listen(fd, 128) < 0)
    fail(path.c_str());
  return fd;
}

// Starts memcached_load with the arguments of this program, but not under Farside: the statistics must be those of the
// server.
pid_t start_load(const std::vector<std::string>& options, const std::string& path, uint64_t keys) {
  std::string load = std::filesystem::read_symlink("/proc/self/exe").replace_filename("memcached_load");
  std::vector<std::string> words = {load};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"--name", "kv_server", "--closed", "on", "--set-every", "20", "--connect", path, "--keys",
                             std::to_string(keys), "--value", std::to_string(Store::kMaxValue)});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  unsetenv("LD_PRELOAD");
  pid_t pid;
  errno = posix_spawn(&pid, load.c_str(), nullptr, nullptr, arguments.data(), environ);
  if (errno) fail(load.c_str());
  return pid;
}

// Serves until the load has ended; returns its status.
int serve(int listener, Store& store, pid_t load) {
  fiber acceptor([&] {
    for (int fd; (fd = farside_fiber_accept(listener, nullptr, nullptr)) >= 0;) {
      spawn([&store, fd] { std::make_unique<Connection>(store, fd)->serve(); });
    }
  });
  int status;
  while (waitpid(load, &status, WNOHANG) == 0) this_fiber::sleep_for(std::chrono::milliseconds(10));
  farside_fiber_close(listener);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int run(int argc, char** argv) {
  Arguments a = parse(argc, argv);
  char folder[] = "/tmp/farside-kv-XXXXXX";
  if (!mkdtemp(folder)) fail(folder);
  std::string path = std::string(folder) + "/socket";
  int listener = listen_at(path);
  Store store(a.size);
  pid_t load = start_load({argv + 1, argv + argc}, path, Store::capacity_for(a.size));
  int status = 1;
  run_fibers(a.threads, [&] { status = serve(listener, store, load); });
  unlink(path.c_str());
  rmdir(folder);
  return status;
}

}  // namespace
}  // namespace farside::apps

int main(int argc, char** argv) { return farside::apps::run(argc, argv); }
