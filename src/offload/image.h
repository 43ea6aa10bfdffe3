// A program or shared object of this process as it is sent to servers: the file up to its last loaded byte, with its
// hash. A program gets the form of a shared object, which differs by a flag. Its memory is near.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/near.h"
#include "base/status.h"
#include "wire/sha256.h"

namespace farside::offload {

class Image : public NearObject {
 public:
  // path: nullptr: of the program.
  static Result<Image*> read(const char* path);
  ~Image();
  std::span<const std::byte> bytes() const { return {data_, bytes_}; }
  const wire::Digest& hash() const { return hash_; }
  // Whether what is loaded at this address is this file: compares code and constants.
  bool is_loaded_at(uintptr_t base) const;

 private:
  Image(std::byte* data, size_t mapped) : data_(data), mapped_(mapped) {}
  Status prepare(const char* path);
  template <typename Visit>
  void for_each_segment(Visit visit) const;

  std::byte* const data_;
  const size_t mapped_;
  size_t bytes_ = 0;
  wire::Digest hash_ = {};
};

}  // namespace farside::offload
