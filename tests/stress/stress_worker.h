// A worker of a stress run: blocks of far memory that only it uses, its stripe of the shared pages, and shadow copies
// of both in near memory. A worker outlives its threads: one after another runs it.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <vector>

#include "random.h"
#include "world.h"

namespace farside::stress {

struct Block {
  std::byte* far = nullptr;
  std::vector<std::byte> shadow;
  bool is_region = false;  // a region with its own policy
  size_t bytes() const { return shadow.size(); }
  size_t pages() const { return shadow.size() / kPageSize; }
};

class StressWorker {
 public:
  StressWorker(World& world, unsigned index);
  ~StressWorker();
  StressWorker(const StressWorker&) = delete;
  StressWorker& operator=(const StressWorker&) = delete;
  // Performs 500 to 4000 operations; then the calling thread ends. One thread at a time.
  void run_for_a_while();
  // Compares everything with the shadow copies; a difference ends the process.
  void verify_all(const char* when);
  void free_all();
  bool wait_for_children();

  std::atomic<bool> busy{false};     // true during an operation; see World::begin_quiet
  std::atomic<bool> running{false};  // true while a thread runs it
  std::atomic<uint64_t> operations{0};

 private:
  struct Range {
    Block* block;
    size_t offset, bytes;
    std::byte* far() const { return block->far + offset; }
    std::byte* shadow() const { return block->shadow.data() + offset; }
  };

  void begin_operation();
  void operate();
  Range any_range(size_t limit);
  Range any_pages(size_t limit);
  void fill(std::byte* to, size_t bytes);

  void write_word();
  void write_word(const Range& range);
  void read_word();
  void write_run();
  void read_run();
  void copy_run();
  void hint();
  void sweep();
  void advise();
  void access_shared_pages();
  void discard();
  void recommit();
  void reallocate();
  void allocate(Block& block);
  void free(Block& block);
  void protect_none();
  void protect_read();
  void call_kernel();
  void call_function();
  void call_on_blocks();
  void call_on(const Range& range, bool written);
  void call_on_shared_pages();
  bool is_on_server(const std::byte* far, bool written) const;
  void transfer(std::byte* far, std::byte* near, size_t bytes, bool write);
  void open_pipe();
  void pump(std::byte* buffer, size_t bytes, bool into_far);
  void fork();
  [[noreturn]] void run_child(bool all);
  void start_threads_in_child();
  void reap(bool wait);

  World& world_;
  const unsigned index_;
  Random random_;
  std::vector<Block> blocks_;
  std::vector<std::byte> stripe_shadow_;
  int pipe_[2];
  transport::Channel* server_ = nullptr;  // what functions see: the server's copy
  std::vector<pid_t> children_;
};

}  // namespace farside::stress
