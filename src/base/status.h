// Errors as values. A Status has an errno value and one line of text: what happened, to what, and what to do about it.
// It allocates no memory, so it may be created during a fault and before the heap exists. The function that detects the
// error writes the text (at most 251 characters; longer ones are cut), which gets the identifier of messages.h; callers
// return it unchanged.
#pragma once
#include <fmt/core.h>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <utility>

#include "base/messages.h"

namespace farside {

class [[nodiscard]] Status {
 public:
  Status() = default;  // success

  template <typename... Args>
  static Status error(int code, fmt::format_string<Args...> format, Args&&... args) {
    Status s;
    s.code_ = code == 0 ? EINVAL : code;
    constexpr size_t kRoom = sizeof s.text_ - 1;
    auto end = fmt::format_to_n(s.text_, kRoom, format, std::forward<Args>(args)...);
    fmt::string_view text = format;
    std::string_view id = message_id({text.data(), text.size()});
    s.text_[append_id(s.text_, end.size < kRoom ? end.size : kRoom, kRoom, id)] = 0;
    return s;
  }

  bool ok() const { return code_ == 0; }
  int code() const { return code_; }          // a positive errno value, 0 on success
  const char* text() const { return text_; }  // "" on success

 private:
  int code_ = 0;
  char text_[252] = {};
};

// A value, or the reason why there is none. value(), * and -> require ok().
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit by intent
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit by intent
  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  T& value() { return *value_; }
  T& operator*() { return *value_; }
  T* operator->() { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace farside
