// Programs and shared objects of clients, by content: each is received in parts, checked against its hash, and kept in
// a sealed memory file while a connection uses it. Thread-safe.
#pragma once
#include <map>
#include <memory>

#include "base/sync.h"
#include "wire/codec.h"
#include "wire/sha256.h"

namespace farside::sandbox {

class Code {
 public:
  explicit Code(int fd) : fd_(fd) {}
  ~Code();
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

// One object while it is received.
class CodeUpload {
 public:
  ~CodeUpload();
  // The next part. 0; 1: the object is complete and as announced; -EBADMSG: not the next part, or a wrong hash;
  // -ENOMEM.
  int add(const wire::CallCodeRequest& request);
  std::shared_ptr<Code> take();

 private:
  int fd_ = -1;
  wire::CallCode head_ = {};
  uint64_t received_ = 0;
  wire::Sha256 hash_;
};

// The objects of all connections.
class CodeCache {
 public:
  // Null: no connection has it.
  std::shared_ptr<Code> find(const wire::Digest& hash);
  void add(const wire::Digest& hash, const std::shared_ptr<Code>& code);

 private:
  Mutex mutex_;
  std::map<wire::Digest, std::weak_ptr<Code>> codes_ GUARDED_BY(mutex_);
};

}  // namespace farside::sandbox
