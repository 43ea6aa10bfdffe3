#include "sandbox/code.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/os.h"

namespace farside::sandbox {

Code::~Code() { os::close(fd_); }

CodeUpload::~CodeUpload() {
  if (fd_ >= 0) os::close(fd_);
}

int CodeUpload::add(const wire::CallCodeRequest& request) {
  bool begins = request.head.offset == 0;
  if (begins) {
    if (fd_ >= 0) os::close(fd_);
    fd_ = os::memfd_create("farside-code", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    head_ = request.head;
    received_ = 0;
    hash_ = {};
  }
  bool is_next = request.head.bytes == head_.bytes && request.head.offset == received_ &&
                 memcmp(request.head.hash, head_.hash, sizeof head_.hash) == 0;
  if (fd_ < 0 || !is_next || request.part.empty()) return -EBADMSG;
  if (write(fd_, request.part.data(), request.part.size()) != static_cast<ssize_t>(request.part.size())) return -ENOMEM;
  hash_.update(request.part);
  received_ += request.part.size();
  if (received_ < head_.bytes) return 0;
  if (memcmp(hash_.finish().data(), head_.hash, sizeof head_.hash) != 0) return -EBADMSG;
  int sealed = os::fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
  return sealed < 0 ? sealed : 1;
}

std::shared_ptr<Code> CodeUpload::take() { return std::make_shared<Code>(std::exchange(fd_, -1)); }

std::shared_ptr<Code> CodeCache::find(const wire::Digest& hash) {
  LockGuard hold(mutex_);
  auto found = codes_.find(hash);
  return found == codes_.end() ? nullptr : found->second.lock();
}

void CodeCache::add(const wire::Digest& hash, const std::shared_ptr<Code>& code) {
  LockGuard hold(mutex_);
  std::erase_if(codes_, [](const auto& entry) { return entry.second.expired(); });
  codes_[hash] = code;
}

}  // namespace farside::sandbox
