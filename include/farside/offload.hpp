// Functions on the memory server: <farside/offload.h> with types. C++17, headers only; link with -lfarside.
//
//   struct Scan { const int* first; size_t count; int limit; };
//   long sum_below(const Scan& s) {
//     long sum = 0;
//     for (size_t i = 0; i < s.count; i++) sum += s.first[i] < s.limit ? s.first[i] : 0;
//     return sum;
//   }
//   void print_sum(const int* column, size_t count) {
//     auto sum = farside::offload::call(sum_below, {column, count, 10}, {{column, count}});
//     if (sum) printf("%ld\n", *sum);
//     else fprintf(stderr, "%s\n", sum.error().text.c_str());
//   }
//
// The function belongs to the program (built as a position-independent executable, the default) or to a shared object
// that it has loaded. Farside sends that file to the server once, and finds the function by its place in the file;
// nothing needs to be registered or exported. Without servers that offer calls, and without Farside, the function is
// called in the program, with the same result. What a function may use: <farside/offload.h>, docs/guide/offload.md.
//
// Functions may also follow owners inside far objects: a call names their structure in place of a range, and the
// address of the first object is in the argument. The owners' deref() works there as in the program. With
// <farside/structure.hpp>:
//
//   struct Node { long value; farside::unique_ptr<Node> next; };
//   template <> struct farside::far_pointers<Node> : farside::fields<&Node::next> {};
//   long sum_list(const Node* const& head) {
//     farside::deref_scope scope;
//     long sum = 0;
//     for (const Node* n = head; n; n = n->next.get_if(scope)) sum += n->value;
//     return sum;
//   }
//   long sum_of(const farside::structure& nodes, const farside::unique_ptr<Node>& head) {
//     farside::deref_scope scope;  // open until the call has ended: the first node stays where it is
//     return farside::offload::call(sum_list, head.address(scope), {nodes}).value();
//   }
//
// Arguments and results are passed by value: trivially copyable types, std::string, std::vector of trivially copyable
// elements, and std::pair of these; at most 1 MiB. Pointers in them refer to far memory that the ranges cover.
//
// Thread-safe. Cost of a call: one round trip, the function, and the write-back of each dirty page of the ranges. Of
// written ranges the near copies are dropped. Errors: see result; nothing is thrown but std::bad_alloc.
#ifndef FARSIDE_OFFLOAD_HPP
#define FARSIDE_OFFLOAD_HPP

#include <farside/offload.h>
#include <farside/offload_codec.hpp>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace farside {
class structure;  // <farside/structure.hpp>
}

namespace farside::offload {

// Where a call is executed.
enum class mode {
  automatic = FARSIDE_OFFLOAD_AUTOMATIC,  // where it is expected to take less time
  server = FARSIDE_OFFLOAD_SERVER,        // on the server; an error where that is not possible
  local = FARSIDE_OFFLOAD_LOCAL,          // in the program
};

// Memory that a call reads or writes: `count` objects from `first` on. Bytes, if the pointer is void*.
struct range {
  template <typename T>
  range(T* first, size_t count)
      : data(const_cast<std::remove_cv_t<T>*>(first)),
        bytes(count * sizeof(std::conditional_t<std::is_void_v<T>, char, T>)) {}
  // The far objects of a structure, of up to 4080 bytes: see farside_offload_range. Only for what a call reads.
  template <typename Structure, typename = std::enable_if_t<std::is_same_v<Structure, structure>>>
  range(const Structure& in) : structures(uint64_t{1} << in.id()) {}
  // Those of no structure.
  static range plain_objects() {
    range all(static_cast<void*>(nullptr), 0);
    all.structures = 1;
    return all;
  }

  void* data = nullptr;
  size_t bytes = 0;
  uint64_t structures = 0;
};
using ranges = std::vector<range>;

struct error {
  int code = 0;                    // a positive errno value, as in <farside/offload.h>
  bool written_undefined = false;  // the function may have run in part: the written ranges are undefined
  std::string text;
};

// The value that a function returned, or why there is none. T may be void.
template <typename T>
class [[nodiscard]] result {
 public:
  using stored = std::conditional_t<std::is_void_v<T>, bool, T>;

  result(stored value, bool on_server) : value_(std::move(value)), on_server_(on_server) {}
  result(offload::error error) : error_(std::move(error)) {}

  explicit operator bool() const { return value_.has_value(); }
  // Only if there is one.
  const stored& operator*() const { return *value_; }
  stored& operator*() { return *value_; }
  const stored* operator->() const { return &*value_; }
  // std::system_error if there is none.
  const stored& value() const {
    if (!value_) throw std::system_error(error_.code, std::generic_category(), error_.text);
    return *value_;
  }
  const offload::error& error() const { return error_; }
  // The function ran on a server.
  bool on_server() const { return on_server_; }

 private:
  std::optional<stored> value_;
  bool on_server_ = false;
  offload::error error_;
};

namespace detail {

template <typename T>
int encode_result(farside_offload_output* output, const T& value) {
  output->bytes = codec<T>::bytes(value);
  if (output->bytes > output->capacity) return output->bytes = 0, -E2BIG;
  char* to = static_cast<char*>(output->data);
  codec<T>::put(to, value);
  return 0;
}

inline int encode_failure(farside_offload_output* output, int code, const char* text) {
  output->bytes = strnlen(text, output->capacity);
  memcpy(output->data, text, output->bytes);
  return -code;
}

template <typename Pointer>
struct signature;
template <typename R, typename A>
struct signature<R (*)(A)> {
  using result = R;
  using argument = std::decay_t<A>;
};
// The pointer type of a function, or of a lambda without captures.
template <typename Function>
using pointer_to = decltype(+std::declval<Function>());
template <typename Function>
using argument_of = typename signature<pointer_to<Function>>::argument;
template <typename Function>
using result_of = typename signature<pointer_to<Function>>::result;

// Runs work(arguments, output), and turns exceptions into errors.
template <typename Work>
int guarded(const void* arguments, farside_offload_output* output, Work work) noexcept {
  try {
    return work(static_cast<const char*>(arguments), output);
  } catch (const std::bad_alloc&) {
    return encode_failure(output, ENOMEM, "the function found no memory");
  } catch (const std::exception& thrown) {
    return encode_failure(output, ECANCELED, thrown.what());
  } catch (...) {
    return encode_failure(output, ECANCELED, "the function threw an exception");
  }
}

// Hidden, so that it belongs to the program or shared object that contains the call.
template <typename Pointer>
__attribute__((visibility("hidden"))) int entry(void* function, const void* arguments, size_t,
                                                farside_offload_output* output) {
  using R = typename signature<Pointer>::result;
  using A = typename signature<Pointer>::argument;
  return guarded(arguments, output, [function](const char* from, farside_offload_output* to) {
    auto call = reinterpret_cast<Pointer>(function);
    if constexpr (std::is_void_v<R>) return call(codec<A>::get(from)), encode_result(to, true);
    else return encode_result<R>(to, call(codec<A>::get(from)));
  });
}

// Where results are stored until they are decoded. One of the largest is kept, since a call may take less time than an
// allocation of 1 MiB.
class result_buffer {
 public:
  explicit result_buffer(size_t bytes) : bytes_(bytes) {
    if (bytes <= sizeof small_) return;
    large_.reset(spare().exchange(nullptr));
    if (!large_) large_.reset(new char[FARSIDE_OFFLOAD_MAX_BYTES]);
  }
  ~result_buffer() {
    if (large_) delete[] spare().exchange(large_.release());
  }
  result_buffer(const result_buffer&) = delete;
  result_buffer& operator=(const result_buffer&) = delete;
  char* data() { return large_ ? large_.get() : small_; }
  const char* data() const { return large_ ? large_.get() : small_; }
  size_t bytes() const { return bytes_; }

 private:
  static std::atomic<char*>& spare() {
    static std::atomic<char*> buffer{nullptr};
    return buffer;
  }
  const size_t bytes_;
  std::unique_ptr<char[]> large_;
  alignas(16) char small_[512];
};

// The bytes that results of a type, or the text of an error, may have.
template <typename R>
constexpr size_t result_bytes() {
  if constexpr (std::is_void_v<R>) return 256;
  else if constexpr (std::is_trivially_copyable_v<R>)
    return sizeof(R) < 256 ? 256 : sizeof(R) < FARSIDE_OFFLOAD_MAX_BYTES ? sizeof(R) : FARSIDE_OFFLOAD_MAX_BYTES;
  else return FARSIDE_OFFLOAD_MAX_BYTES;
}

// What a call needs until it ends.
class request {
 public:
  request(farside_offload_entry entry, void* function, std::vector<char> arguments, const ranges& read,
          const ranges& written, mode where, size_t result_bytes)
      : arguments_(std::move(arguments)), result_(result_bytes) {
    ranges_.reserve(read.size() + written.size());
    for (const range& r : read) ranges_.push_back({r.data, r.bytes, 0, r.structures});
    for (const range& r : written) ranges_.push_back({r.data, r.bytes, 1, r.structures});
    request_ = {entry,
                function,
                arguments_.data(),
                arguments_.size(),
                ranges_.data(),
                ranges_.size(),
                static_cast<farside_offload_mode>(where)};
    reply_ = {};
    reply_.result = {result_.data(), result_.bytes(), 0};
  }
  request(const request&) = delete;
  request& operator=(const request&) = delete;

  int run() { return farside_offload_call(&request_, &reply_); }
  int start(farside_offload_task** task) { return farside_offload_start(&request_, &reply_, task); }

  template <typename R>
  result<R> take(int returned) const {
    if (returned < 0) return error{-returned, reply_.written_undefined != 0, reply_.text};
    const char* from = result_.data();
    return {codec<typename result<R>::stored>::get(from), reply_.on_server != 0};
  }

 private:
  const std::vector<char> arguments_;
  result_buffer result_;
  std::vector<farside_offload_range> ranges_;
  farside_offload_request request_;
  farside_offload_reply reply_;
};

template <typename Function>
std::unique_ptr<request> make_request(Function function, const argument_of<Function>& argument, const ranges& read,
                                      const ranges& written, mode where) {
  auto pointer = +function;
  return std::make_unique<request>(entry<pointer_to<Function>>, reinterpret_cast<void*>(pointer), encode(argument),
                                   read, written, where, result_bytes<result_of<Function>>());
}

}  // namespace detail

// Whether a server of this process offers calls. May block for a round trip at its first call.
inline bool available() { return farside_offload_servers() > 0; }

// Calls function(argument) where the mode says. function: R f(A) or R f(const A&), or a lambda without captures.
// read, written: the far memory that it accesses; what it also writes is in `written` only. While it runs, other
// threads must not write the read ranges, nor access the written ones. In a fiber only the fiber waits.
template <typename Function>
result<detail::result_of<Function>> call(Function function, const detail::argument_of<Function>& argument,
                                         const ranges& read, const ranges& written = {}, mode where = mode::automatic) {
  auto request = detail::make_request(function, argument, read, written, where);
  return request->template take<detail::result_of<Function>>(request->run());
}

// A call that was started. The destructor waits for it. Movable, not copyable.
template <typename R>
class [[nodiscard]] pending {
 public:
  pending(std::unique_ptr<detail::request> request, farside_offload_task* task, int failed)
      : request_(std::move(request)), task_(task), failed_(failed) {}
  pending(pending&& other) noexcept
      : request_(std::move(other.request_)), task_(std::exchange(other.task_, nullptr)), failed_(other.failed_) {}
  pending& operator=(pending&& other) noexcept {
    if (this == &other) return *this;
    finish();
    request_ = std::move(other.request_);
    task_ = std::exchange(other.task_, nullptr);
    failed_ = other.failed_;
    return *this;
  }
  ~pending() { finish(); }

  // Waits for the end of the call. To be called once. In a fiber only the fiber waits.
  result<R> get() {
    int returned = finish();
    return request_->template take<R>(returned);
  }

 private:
  int finish() { return task_ ? farside_offload_finish(std::exchange(task_, nullptr)) : failed_; }

  std::unique_ptr<detail::request> request_;
  farside_offload_task* task_;
  int failed_;
};

// As call, without waiting for the end.
template <typename Function>
pending<detail::result_of<Function>> async(Function function, const detail::argument_of<Function>& argument,
                                           const ranges& read, const ranges& written = {},
                                           mode where = mode::automatic) {
  auto request = detail::make_request(function, argument, read, written, where);
  farside_offload_task* task = nullptr;
  int started = request->start(&task);
  return {std::move(request), task, started};
}

namespace detail {

template <typename Pointer>
struct part_signature;
template <typename R, typename A, typename T>
struct part_signature<R (*)(A, const T*, size_t)> {
  using result = R;
  using argument = std::decay_t<A>;
  using element = T;
};
template <typename Map>
using part_of = part_signature<pointer_to<Map>>;

// A piece of the data.
struct piece {
  const void* first;
  size_t count;
};

// combine: its distance from the function `map`, which is the same in every process.
template <typename Pointer>
using part_arguments = std::pair<std::pair<intptr_t, typename part_signature<Pointer>::argument>, std::vector<piece>>;

template <typename Pointer>
__attribute__((visibility("hidden"))) int part_entry(void* function, const void* arguments, size_t,
                                                     farside_offload_output* output) {
  using S = part_signature<Pointer>;
  using R = typename S::result;
  return guarded(arguments, output, [function](const char* from, farside_offload_output* to) {
    auto [fixed, pieces] = codec<part_arguments<Pointer>>::get(from);
    auto map = reinterpret_cast<Pointer>(function);
    auto combine = reinterpret_cast<R (*)(R, R)>(reinterpret_cast<intptr_t>(function) + fixed.first);
    auto map_piece = [&, &argument = fixed.second](const piece& p) {
      return map(argument, static_cast<const typename S::element*>(p.first), p.count);
    };
    R all = map_piece(pieces[0]);
    for (size_t i = 1; i < pieces.size(); i++) all = combine(std::move(all), map_piece(pieces[i]));
    return encode_result<R>(to, all);
  });
}

// The pieces of the data that one server holds, or that none does.
struct server_part {
  int server;
  std::vector<piece> pieces;
  size_t bytes = 0;
};

// Cuts the data where the server changes. An element that lies on two servers is a piece of its own, of none.
template <typename T>
std::vector<server_part> split(const T* data, size_t count) {
  std::vector<server_part> parts;
  auto add = [&](int server, const T* first, size_t n) {
    size_t at = 0;
    while (at < parts.size() && (parts[at].server != server || parts[at].pieces.size() == FARSIDE_OFFLOAD_MAX_RANGES))
      at++;
    if (at == parts.size()) parts.push_back({server, {}});
    parts[at].pieces.push_back({first, n});
  };
  while (count > 0) {
    size_t same = 0;
    int server = farside_offload_place(data, count * sizeof(T), &same);
    size_t whole = server < 0 ? count : same / sizeof(T);
    add(whole == 0 ? -1 : server, data, whole == 0 ? 1 : whole);
    data += whole == 0 ? 1 : whole;
    count -= whole == 0 ? 1 : whole;
  }
  return parts;
}

}  // namespace detail

// Maps and reduces an array that may lie on several servers: each server calls map(argument, first, count) for the
// pieces of [data, data + count) that it holds and combines their results, all servers at the same time; then the
// program combines these. map: R f(A, const T* first, size_t count); combine: R f(R, R), associative and commutative,
// in the same program or shared object as map. If count is 0, map is called once with it. read: further ranges that
// map reads, which must be on all of these servers, so there is usually none.
template <typename Map, typename Combine>
result<typename detail::part_of<Map>::result> for_each_server(Map map,
                                                              const typename detail::part_of<Map>::argument& argument,
                                                              const typename detail::part_of<Map>::element* data,
                                                              size_t count, Combine combine, const ranges& read = {},
                                                              mode where = mode::automatic) {
  using pointer = detail::pointer_to<Map>;
  using R = typename detail::part_of<Map>::result;
  pointer function = +map;
  R (*combined)(R, R) = combine;
  auto distance = reinterpret_cast<intptr_t>(combined) - reinterpret_cast<intptr_t>(function);
  std::vector<pending<R>> calls;
  auto parts = detail::split(data, count);
  if (parts.empty()) parts.push_back({-1, {{data, 0}}});
  for (const detail::server_part& part : parts) {
    ranges all = read;
    for (const detail::piece& p : part.pieces) all.emplace_back(static_cast<decltype(data)>(p.first), p.count);
    auto request = std::make_unique<detail::request>(
        detail::part_entry<pointer>, reinterpret_cast<void*>(function),
        detail::encode(detail::part_arguments<pointer>({distance, argument}, part.pieces)), all, ranges(),
        part.server < 0 ? mode::local : where, detail::result_bytes<R>());
    farside_offload_task* task = nullptr;
    int started = request->start(&task);
    calls.emplace_back(std::move(request), task, started);
  }
  result<R> all = calls[0].get();
  for (size_t i = 1; i < calls.size(); i++) {
    result<R> next = calls[i].get();
    if (!all) continue;
    if (!next) all = std::move(next);
    else all = result<R>(combine(std::move(*all), std::move(*next)), all.on_server() && next.on_server());
  }
  return all;
}

}  // namespace farside::offload
#endif
