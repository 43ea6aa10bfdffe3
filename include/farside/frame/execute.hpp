// Where an operator runs: near, or on the memory server. Programs name `placement` only.
//
// near: in the calling thread, over blocks of rows whose pages are requested ahead by hints.
// server: by farside::offload::call, on the server that holds the columns; std::system_error if that is impossible.
// automatic: where the operator is expected to take less time, and near where a call fails. The expectation of each way
// is computed from the bytes that are far, and dirty, in the operator's columns, which is read from the page words, and
// from times that were measured in this process: of a byte fetched, of a byte computed near and on the server by the
// same query, and of a call. The first queries of a process use kPrior. See docs/decisions/0033-data-frames.md.
#ifndef FARSIDE_FRAME_EXECUTE_HPP
#define FARSIDE_FRAME_EXECUTE_HPP

#include <farside/frame/operators.hpp>
#include <farside/offload.hpp>

#include <chrono>
#include <map>
#include <mutex>

namespace farside::frame {

enum class placement : uint8_t { automatic, near, server };

// The bytes of a query's input, and how many of them are where. Dirty bytes are near.
struct residency {
  double bytes = 0, far = 0, dirty = 0;
};

// Looks at up to 64 pages of a range, evenly spread.
inline void add_residency(residency& to, const void* data, size_t bytes) {
  constexpr uint64_t kState = 7, kNear = FARSIDE_PAGE_NEAR_ & kState, kFar = 2;  // of a page word
  uintptr_t offset = reinterpret_cast<uintptr_t>(data) - farside_view.begin;
  to.bytes += static_cast<double>(bytes);
  if (bytes == 0 || offset >= farside_view.bytes) return;
  size_t first = offset >> 12, pages = ((offset + bytes - 1) >> 12) - first + 1, looked = std::min<size_t>(pages, 64);
  size_t far = 0, dirty = 0;
  for (size_t i = 0; i < looked; i++) {
    uint64_t word = __atomic_load_n(&farside_view.words[first + i * pages / looked], __ATOMIC_RELAXED);
    far += (word & kState) == kFar;
    dirty += (word & kState) == kNear && (word & FARSIDE_PAGE_DIRTY_);
  }
  double each = static_cast<double>(bytes) / static_cast<double>(looked);
  to.far += static_cast<double>(far) * each;
  to.dirty += static_cast<double>(dirty) * each;
}

// Calls f(pointer, bytes) for each buffer of a column.
template <typename F>
void for_each_buffer(const column_view& v, F f) {
  if (v.rows == 0) return;
  if (v.validity) f(v.validity, static_cast<size_t>(bitmap_bytes(v.rows)));
  if (v.id == type_id::utf8) f(v.values, static_cast<size_t>(v.rows + 1) * sizeof(int32_t));
  else if (v.id == type_id::boolean) f(v.values, static_cast<size_t>(bitmap_bytes(v.rows)));
  else f(v.values, static_cast<size_t>(v.rows) * width_of(v.id));
  if (v.text_bytes > 0) f(v.text, static_cast<size_t>(v.text_bytes));
}

// What was measured of queries in this process, and the decision that follows. Thread-safe.
class cost_model {
 public:
  using clock = std::chrono::steady_clock;

  static cost_model& instance() {
    static cost_model model;
    return model;
  }
  bool prefers_server(uint64_t query, const residency& is) {
    std::lock_guard lock(mutex_);
    estimate& e = queries_[query];
    double near = e.near_byte_ns * is.bytes + fetch_byte_ns_ * is.far;
    double server = call_ns_ + e.server_byte_ns * is.bytes + fetch_byte_ns_ * is.dirty;
    return server < near;
  }
  void ran_near(uint64_t query, const residency& is, double ns) {
    std::lock_guard lock(mutex_);
    estimate& e = queries_[query];
    if (is.far < is.bytes / 20) {
      learn(e.near_byte_ns, ns / is.bytes);
      if (!e.has_server) e.server_byte_ns = e.near_byte_ns;
    } else {
      learn(fetch_byte_ns_, std::max(0.0, ns - e.near_byte_ns * is.bytes) / is.far);
    }
  }
  void ran_on_server(uint64_t query, const residency& is, double ns) {
    std::lock_guard lock(mutex_);
    estimate& e = queries_[query];
    learn(e.server_byte_ns, std::max(0.0, ns - call_ns_ - fetch_byte_ns_ * is.dirty) / is.bytes);
    e.has_server = true;
  }
  void failed_on_server(uint64_t query) {
    std::lock_guard lock(mutex_);
    queries_[query].server_byte_ns = kNever;
  }

 private:
  static constexpr double kPrior = 0.5, kNever = 1e6;  // ns of a byte
  struct estimate {
    double near_byte_ns = kPrior, server_byte_ns = kPrior;
    bool has_server = false;
  };
  static void learn(double& value, double measured) { value = (value + measured) / 2; }

  std::mutex mutex_;
  double fetch_byte_ns_ = 1, call_ns_ = 100000;
  std::map<uint64_t, estimate> queries_;
};

// Near, rows are computed in blocks. The pages of a block are requested before it, together with those of the next
// ones.
struct blocks {
  static constexpr bool is_near = true;
  template <typename F>
  void operator()(std::span<const column_view> columns, int64_t rows, F f) const {
    constexpr int64_t kBlock = 8 * kBatchRows;  // 16 pages of a column of 8 bytes
    for (int64_t begin = 0; begin < rows; begin += kBlock) {
      int64_t end = std::min(rows, begin + kBlock);
      for (const column_view& v : columns) hint_rows(v, begin, end);
      f(begin, end);
    }
  }

 private:
  static void hint_rows(const column_view& v, int64_t begin, int64_t end) {
    constexpr unsigned kAhead = FARSIDE_READ | FARSIDE_AHEAD(32);
    auto part = [&](const void* data, int64_t from, int64_t to) {
      farside_hint(static_cast<const char*>(data) + from, static_cast<size_t>(to - from), kAhead);
    };
    auto width = static_cast<int64_t>(width_of(v.id));
    if (v.validity) part(v.validity, begin / 8, (end + 7) / 8);
    if (v.id == type_id::boolean) return part(v.values, begin / 8, (end + 7) / 8);
    if (v.id != type_id::utf8) return part(v.values, begin * width, end * width);
    part(v.values, begin * 4, (end + 1) * 4);
    if (v.as<int32_t>()[end] > v.as<int32_t>()[begin]) part(v.text, v.as<int32_t>()[begin], v.as<int32_t>()[end]);
  }
};

class query {
 public:
  explicit query(const request_view& r) : r_(r) {
    for (const column_view& v : r.columns.columns) read_column(v);
    for (const column_view& v : r.small.columns) read_column(v);
    for (size_t c = 0; c < r.outputs.size(); c++) write_column(c);
    if (r.fixed.bitmap)
      add(r.fixed.op == operation::select ? written_ : read_, r.fixed.bitmap, bitmap_bytes(r.fixed.rows));
    if (r.fixed.picks) add(read_, r.fixed.picks, r.fixed.pick_count * 8);
  }
  // Memory that the query writes besides its outputs.
  void writes(void* data, int64_t bytes) { add(written_, data, bytes); }

  message run(placement where) {
    if (where == placement::near || !offload::available()) return unless_required(where);
    if (where == placement::server) return on_server().value();
    residency is;
    for (const offload::range& r : read_) add_residency(is, r.data, r.bytes);
    return run_measured(is);
  }

 private:
  void read_column(const column_view& v) {
    for_each_buffer(v, [&](const void* data, size_t bytes) { add(read_, data, static_cast<int64_t>(bytes)); });
  }
  void write_column(size_t c) {
    const column_output& to = r_.outputs[c];
    if (to.capacity == 0) return;
    column_view written = {to.validity, to.values, to.text, to.capacity, to.text_capacity, to.id};
    for_each_buffer(written, [&](const void* data, size_t bytes) { add(written_, data, static_cast<int64_t>(bytes)); });
  }
  static void add(offload::ranges& to, const void* data, int64_t bytes) {
    if (bytes > 0) to.emplace_back(static_cast<const char*>(data), static_cast<size_t>(bytes));
  }

  message unless_required(placement where) {
    if (where == placement::server)
      throw std::system_error(EOPNOTSUPP, std::generic_category(), "farside: no memory server offers calls");
    return near();
  }
  offload::result<message> on_server() {
    return offload::call(execute_encoded, encode(r_), read_, written_, offload::mode::server);
  }
  message run_measured(const residency& is) {
    cost_model& model = cost_model::instance();
    uint64_t id = identity();
    auto start = cost_model::clock::now();
    auto elapsed = [&] { return std::chrono::duration<double, std::nano>(cost_model::clock::now() - start).count(); };
    if (is.bytes > 0 && model.prefers_server(id, is)) {
      if (auto reply = on_server()) {
        model.ran_on_server(id, is, elapsed());
        return std::move(*reply);
      }
      model.failed_on_server(id);
      for (const offload::range& r : written_) std::memset(r.data, 0, r.bytes);
      return near();
    }
    message reply = near();
    if (is.bytes > 0) model.ran_near(id, is, elapsed());
    return reply;
  }
  // Queries with the same operations, whatever their columns and constants.
  uint64_t identity() const {
    uint64_t hash = static_cast<uint64_t>(r_.fixed.op);
    for (const instruction& i : r_.columns.code) hash = mix_hash(hash * 64 + static_cast<uint64_t>(i.op));
    for (const column_view& v : r_.columns.columns) hash = mix_hash(hash * 64 + static_cast<uint64_t>(v.id));
    for (const aggregate_spec& a : r_.aggregates) hash = mix_hash(hash * 64 + static_cast<uint64_t>(a.op));
    return hash;
  }
  message near() { return execute(r_, blocks()); }

  const request_view& r_;
  offload::ranges read_, written_;
};

}  // namespace farside::frame
#endif
