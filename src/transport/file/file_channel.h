// A channel to a far file. Pages are read and written whole, past the page cache: parts of pages, and buffers that are
// not aligned, pass through buffers of the channel. Every page that is read is compared with its checksum. A write
// takes free slots of the file and changes the map when it is complete (far_space.h), so reads never meet half of it,
// and a part of a page is read, changed and written elsewhere.
#pragma once
#include <sys/uio.h>

#include <memory>

#include "transport/failure.h"
#include "transport/file/file_queue.h"
#include "transport/file/slot_file.h"
#include "transport/transport.h"
#include "transport/waiting.h"

namespace farside::transport {

// What the channels of a process share.
struct FileTarget {
  SlotFile* space;
  FarRegion* region;
  FailureReport* failures;
  const char* name;  // the address, for messages
};

// An array in near memory that grows and never shrinks.
template <typename T>
class NearArray {
 public:
  NearArray() = default;
  ~NearArray() { near_free(data_, room_ * sizeof(T)); }
  NearArray(const NearArray&) = delete;
  NearArray& operator=(const NearArray&) = delete;
  // Room for so many; the content is lost where it grows.
  void make_room(size_t count) {
    if (count <= room_) return;
    near_free(data_, room_ * sizeof(T));
    data_ = static_cast<T*>(near_alloc(count * sizeof(T)));
    room_ = count;
  }
  T& operator[](size_t i) { return data_[i]; }
  T* data() { return data_; }

 private:
  T* data_ = nullptr;
  size_t room_ = 0;
};

class FileChannel final : public Channel {
 public:
  explicit FileChannel(const FileTarget& file) : file_(file), queue_(new FileQueue) {}
  ~FileChannel() override;

  int submit_read(std::span<const ByteRange> ranges, Token* token) override;
  int submit_write(std::span<const ByteRange> ranges, int pipe, Token* token) override;
  int submit_discard(std::span<const ByteRange> ranges, Token* token) override;
  void gather(bool on) override { gathers_ = on; }
  int poll(Token token) override;
  int wait(Token token, uint64_t timeout_ns) override;

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr int kInFlight = 1;
  static constexpr unsigned kRunPages = 64;  // of one request to the kernel

  // A part of a page, and the caller's bytes; near == nullptr: zeros.
  struct Part {
    std::byte* near;
    uint32_t offset, bytes;
    uint32_t next;  // of the same page; kNone: the last one
  };
  struct Page {
    uint64_t index, word;  // in the region; the word when the request began, then the one to be published
    std::byte* content;    // 4 KiB, aligned for direct I/O
    uint32_t first, last;  // parts
    SlotNumber slot;       // taken for a write
    bool bounces;          // content is the channel's
    bool in_file;          // has to be read or written
  };
  // Pages in slots that follow each other. They are transferred by one request to the kernel.
  struct Run {
    iocb request;
    uint32_t bytes;
  };
  struct Request {
    Token token = 0;                         // 0: free. The low four bits are the index of the request
    bool writes = false, publishes = false;  // publishes: the pages are being written, after old content was read
    int result = 0;                          // kInFlight, 0 or -errno
    uint32_t parts = 0, pages = 0, runs = 0, next_run = 0, runs_left = 0;
    bool is_sorted = true;  // the pages, so far
    NearArray<Part> part;
    NearArray<Page> page;
    NearArray<Run> run;
    NearArray<iovec> vector;
    NearArray<SlotNumber> slot;
    NearArray<std::byte> bounce, staging;
  };

  static size_t max_parts(size_t ranges, uint64_t bytes) { return bytes / kPageSize + 2 * ranges; }
  int check(std::span<const ByteRange> ranges, uint64_t max_bytes, uint64_t* total) const;
  void begin(Request& r, size_t max_parts, bool writes);
  void add_segment(Request& r, uint64_t far, uint64_t bytes, std::byte* near);
  void add_part(Request& r, uint64_t index, uint32_t offset, uint32_t bytes, std::byte* near);
  uint32_t find_page(Request& r, uint64_t index);
  bool is_whole(Request& r, const Page& page);
  void place_contents(Request& r);
  int submitted(Request& r, Token* token);
  int take_slots(Request& r);
  void release_slots(Request& r);
  bool has_writes() const;
  void start_write(Request& r);
  void start_publishing(Request& r);
  void prepare_write(Request& r, Page& page);
  void finish_writes(Request& r);
  void finish_reads(Request& r);
  bool has_arrived(Page& page);
  bool read_again(Page& page);
  void transfer(Request& r, bool write);
  void add_run(Request& r, uint32_t first, uint32_t end, SlotNumber slot, bool write);
  void submit_runs();
  bool is_alone(const Request& r) const;
  void execute(Request& r);
  void sleep(Request& r, uint64_t timeout_ns);
  void pump();
  void handle(const io_event& event);
  void finish_phase(Request& r);
  void fail_transfer(bool write, int64_t result);
  void fail_released();
  void fail(const Status& reason);
  size_t index_of(const Request& r) const { return static_cast<size_t>(&r - requests_); }

  const FileTarget file_;
  std::unique_ptr<FileQueue> queue_;
  int error_ = 0;  // not 0: the channel has failed
  bool gathers_ = false;
  ReplyTimes reply_times_;
  uint64_t sequence_ = 0;
  unsigned waiting_runs_ = 0;  // not submitted to the kernel yet
  Request requests_[kMaxInFlight];
};

}  // namespace farside::transport
