// Reads and writes of a file that the kernel executes while the caller goes on: a context of Linux AIO (io_setup). Its
// ring of completions is mapped in this process, so that looking for results costs no system call. Completions need
// nothing of the thread that submitted: with io_uring they are work of that thread, which cuts the system calls of the
// program short and waits while the thread is in a vfork (docs/decisions/0031).
//
// Where the kernel grants no context (fs.aio-max-nr, a seccomp filter), submit() executes the requests itself.
//
// For one thread at a time. Async-signal-safe.
#pragma once
#include <linux/aio_abi.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/near.h"

namespace farside::transport {

class FileQueue : public NearObject {
 public:
  static constexpr unsigned kDepth = 64;  // requests in flight

  enum class Mode { kAsynchronous, kSynchronous };
  explicit FileQueue(Mode mode = Mode::kAsynchronous);
  ~FileQueue();  // waits for what is in flight
  FileQueue(const FileQueue&) = delete;
  FileQueue& operator=(const FileQueue&) = delete;

  bool is_asynchronous() const { return context_ != 0; }
  unsigned in_flight() const { return in_flight_; }

  // Starts the first requests of the list and returns how many; 0: there is no room at present. They stay valid until
  // they complete. A request that cannot be started completes with its error.
  size_t submit(std::span<iocb* const> requests);

  // Stores results and returns how many. io_event::data is iocb::aio_data, res the bytes or -errno. No system call.
  size_t take(std::span<io_event> results);

  // Executes a request that was not submitted. The bytes, or -errno.
  static int64_t execute(const iocb& request);

  // Sleeps until take() has something, or the time has passed, or a signal arrived.
  void sleep(uint64_t timeout_ns);

  // Whether this kernel permits such contexts. 0 or -errno.
  static int probe();

 private:
  size_t keep(const io_event& result);

  aio_context_t context_ = 0;
  unsigned in_flight_ = 0;
  io_event kept_[kDepth];  // results that are not in the kernel's ring
  unsigned kept_count_ = 0;
};

}  // namespace farside::transport
