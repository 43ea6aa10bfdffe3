#include "ucx/remote_region.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "wire/crc32c.h"

namespace farside::ucx {

RemoteRegion::~RemoteRegion() { disconnect(); }

void RemoteRegion::remove(RegionLink* link) { std::erase(links_, link); }

// Calls visit(slab, page within the slab) until it returns false, and returns false then.
template <typename Visit>
bool RemoteRegion::for_each_page(wire::ByteRange range, Visit visit) {
  uint64_t first = range.offset / wire::kPageBytes, last = (range.offset + range.bytes - 1) / wire::kPageBytes;
  for (uint64_t page = first; page <= last; page++) {
    if (!visit(page / kPages, page % kPages)) return false;
  }
  return true;
}

bool RemoteRegion::is_reachable(const wire::RangeList& ranges) {
  for (uint32_t i = 0; i < ranges.size(); i++) {
    bool reachable = for_each_page(ranges[i], [&](uint64_t slab, uint64_t page) {
      auto it = slabs_.find(slab);
      return it != slabs_.end() && it->second.key && (it->second.pages[page / 64] >> (page % 64) & 1);
    });
    if (!reachable) return false;
  }
  return true;
}

bool RemoteRegion::start(const std::shared_ptr<RegionLink>& link, wire::Op op, const wire::ListRequest& list,
                         wire::Bytes frame) {
  bool is_write = op == wire::Op::kWrite;
  if (state_ != State::kTogether || endpoint_failed_ || (is_write && has_snapshots_)) return false;
  if (!is_reachable(list.ranges)) return false;
  auto request = std::make_unique<Request>();
  request->ucp = &ucp_;
  request->link = link;
  request->is_write = is_write;
  request->since_ns = now_ns();
  request->frame.assign(frame.begin(), frame.end());
  request->reply_bytes = sizeof(wire::FrameHeader) + (is_write ? 0 : list.total_bytes);
  request->reply = std::make_unique_for_overwrite<std::byte[]>(request->reply_bytes);
  Request* r = request.get();
  requests_.push_back(std::move(request));
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = completed;
  param.user_data = r;
  if (!is_write) {
    transfer(r, list.ranges, r->reply.get() + sizeof(wire::FrameHeader),
             [&](std::byte* data, uint64_t bytes, uint64_t address, ucp_rkey_h key) {
               return ucp_.ucp_get_nbx(endpoint_, data, bytes, address, key, &param);
             });
    return true;
  }
  transfer(r, list.ranges, r->frame.data() + (r->frame.size() - list.total_bytes),
           [&](std::byte* data, uint64_t bytes, uint64_t address, ucp_rkey_h key) {
             return ucp_.ucp_put_nbx(endpoint_, data, bytes, address, key, &param);
           });
  // A put is complete when its buffer is free. After the flush the data is in the region.
  track(r, ucp_.ucp_ep_flush_nbx(endpoint_, &param));
  return true;
}

// One operation for each run of adjacent ranges within a slab.
template <typename Transfer>
void RemoteRegion::transfer(Request* request, const wire::RangeList& ranges, std::byte* data, Transfer transfer) {
  for (uint32_t i = 0; i < ranges.size();) {
    wire::ByteRange run = ranges[i++];
    while (i < ranges.size() && ranges[i].offset == run.offset + run.bytes) run.bytes += ranges[i++].bytes;
    while (run.bytes > 0) {
      uint64_t within = run.offset % wire::kSlabBytes, bytes = std::min(run.bytes, wire::kSlabBytes - within);
      const Slab& slab = slabs_.at(run.offset / wire::kSlabBytes);
      track(request, transfer(data, bytes, slab.address + within, slab.key));
      data += bytes;
      run = {run.offset + bytes, run.bytes - bytes};
    }
  }
}

void RemoteRegion::track(Request* request, ucs_status_ptr_t result) {
  if (UCS_PTR_IS_ERR(result)) request->status = UCS_PTR_STATUS(result);
  else if (result != nullptr) request->pending++;
}

void RemoteRegion::completed(void* operation, ucs_status_t status, void* user_data) {
  auto* request = static_cast<Request*>(user_data);
  request->ucp->ucp_request_free(operation);
  if (status != UCS_OK) request->status = status;
  request->pending--;
}

void RemoteRegion::endpoint_failed(void* region, ucp_ep_h, ucs_status_t) {
  static_cast<RemoteRegion*>(region)->endpoint_failed_ = true;
}

bool RemoteRegion::may_change() const {
  if (state_ == State::kRevoking) return false;
  return std::none_of(requests_.begin(), requests_.end(), [](const auto& r) {
    if (!r->is_write || r->abandoned) return false;
    auto link = r->link.lock();
    return !link || !link->is_open();
  });
}

void RemoteRegion::stored(const std::vector<wire::ByteRange>& ranges) {
  for (wire::ByteRange range : ranges) {
    for_each_page(range, [&](uint64_t number, uint64_t page) {
      Slab& slab = slabs_[number];
      uint64_t bit = uint64_t{1} << (page % 64);
      slab.stored += !(slab.pages[page / 64] & bit);
      slab.pages[page / 64] |= bit;
      return true;
    });
  }
}

void RemoteRegion::forget_pages(uint64_t number, wire::ByteRange discarded, Slab* slab) {
  uint64_t begin = std::max(number * wire::kSlabBytes, discarded.offset);
  uint64_t end = std::min((number + 1) * wire::kSlabBytes, discarded.offset + discarded.bytes);
  if (begin >= end) return;
  for_each_page({begin, end - begin}, [&](uint64_t, uint64_t page) {
    uint64_t bit = uint64_t{1} << (page % 64);
    slab->stored -= (slab->pages[page / 64] & bit) != 0;
    slab->pages[page / 64] &= ~bit;
    return true;
  });
}

// A slab without stored pages is not shared any more. ByteRanges may be as large as the region.
void RemoteRegion::discarding(const wire::RangeList& ranges) {
  for (uint32_t i = 0; i < ranges.size(); i++) {
    wire::ByteRange e = ranges[i];
    for (auto it = slabs_.begin(); it != slabs_.end();) {
      Slab& slab = it->second;
      forget_pages(it->first, e, &slab);
      if (slab.stored == 0) drop_key(&slab);
      it = slab.stored == 0 ? slabs_.erase(it) : std::next(it);
    }
  }
}

bool RemoteRegion::wants(uint64_t offset, uint64_t now) {
  if (never_ || state_ == State::kRevoking || now < not_before_ns_) return false;
  auto it = slabs_.find(offset / wire::kSlabBytes);
  if (it == slabs_.end()) return false;
  if (it->second.key) {  // asked again, to learn that there are no snapshots any more
    if (!has_snapshots_ || snapshots_pending_ > 0 || now < next_look_ns_) return false;
    next_look_ns_ = now + kLaterNs / 10;
    return true;
  }
  if (now < it->second.next_try_ns) return false;
  it->second.next_try_ns = now + kSoonNs;
  return true;
}

void RemoteRegion::take_answer(uint64_t offset, int code, const wire::ShareReply& reply, uint64_t asked_after,
                               uint64_t now) {
  if (code == -ENOTSUP && !never_) {
    never_ = true;
    log(LogLevel::kWarning, "a memory server offers no UCX, so its pages go over TCP; start it with --ucx");
  }
  auto it = slabs_.find(offset / wire::kSlabBytes);
  if (state_ == State::kRevoking || it == slabs_.end()) return;
  Slab& slab = it->second;
  if (code != 0) {
    slab.next_try_ns = now + (code == -EAGAIN ? kSoonNs : kLaterNs);
    return;
  }
  note_no_snapshots(reply, asked_after);
  if (slab.key) return;
  if (endpoint_ && epoch_ != reply.epoch) return abandon(now);
  if (!endpoint_ && !connect(reply)) {
    not_before_ns_ = now + kLastPauseNs;
    log(LogLevel::kWarning,
        "UCX finds no way to a memory server, so its pages go over TCP; choose transports with --tune ucx=LIST");
    return;
  }
  if (ucp_.ucp_ep_rkey_unpack(endpoint_, reply.key, &slab.key) != UCS_OK) slab.key = nullptr;
  slab.address = reply.address;
  slab.next_try_ns = now + kLaterNs;
}

// Snapshots that were requested after the question are not in the answer.
void RemoteRegion::note_no_snapshots(const wire::ShareReply& reply, uint64_t asked_after) {
  if (reply.live_overlays == 0 && snapshots_pending_ == 0 && asked_after == snapshots_seen_) has_snapshots_ = false;
}

bool RemoteRegion::connect(const wire::ShareReply& reply) {
  ucp_ep_params_t params = {};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(reply.worker);
  params.err_handler = {endpoint_failed, this};
  endpoint_failed_ = false;
  // Shared memory alone notices no failures. Then requests to a peer that has ended take too long.
  for (ucp_err_handling_mode_t mode : {UCP_ERR_HANDLING_MODE_PEER, UCP_ERR_HANDLING_MODE_NONE}) {
    params.err_mode = mode;
    can_be_closed_ = mode == UCP_ERR_HANDLING_MODE_PEER;
    if (ucp_.ucp_ep_create(worker_.get(), &params, &endpoint_) != UCS_OK) continue;
    epoch_ = reply.epoch;
    state_ = State::kTogether;
    return true;
  }
  endpoint_ = nullptr;
  return false;
}

// An endpoint that notices no failures cannot be closed without its peer; it is left open.
void RemoteRegion::disconnect() {
  drop_all_keys();
  ucp_ep_h endpoint = std::exchange(endpoint_, nullptr);
  if (endpoint && can_be_closed_) {
    ucp_request_param_t param = {};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    ucs_status_ptr_t closing = ucp_.ucp_ep_close_nbx(endpoint, &param);
    if (UCS_PTR_IS_PTR(closing)) ucp_.ucp_request_free(closing);
  }
  if (!requests_.empty()) return;
  for (ucp_rkey_h key : old_keys_) ucp_.ucp_rkey_destroy(key);
  old_keys_.clear();
}

void RemoteRegion::drop_key(Slab* slab) {
  if (slab->key) old_keys_.push_back(std::exchange(slab->key, nullptr));
}

void RemoteRegion::drop_all_keys() {
  for (auto& [number, slab] : slabs_) drop_key(&slab);
}

void RemoteRegion::settle(uint64_t now) {
  bool failed = endpoint_failed_ && state_ == State::kTogether, ended = false;
  for (auto it = requests_.begin(); it != requests_.end();) {
    Request* request = it->get();
    bool over = request->pending == 0 && (request->abandoned || request->status == UCS_OK);
    failed = failed || (!request->abandoned && request->status != UCS_OK) ||
             (!request->abandoned && request->pending > 0 && now - request->since_ns > kTimeoutNs);
    if (over && !request->abandoned) answer(request);
    ended = ended || over;
    it = over ? requests_.erase(it) : std::next(it);
  }
  if (failed) abandon(now);
  else if (ended) resume_links();
  if (requests_.empty() && !old_keys_.empty()) {
    for (ucp_rkey_h key : old_keys_) ucp_.ucp_rkey_destroy(key);
    old_keys_.clear();
  }
}

void RemoteRegion::answer(Request* request) {
  pause_ns_ = kLaterNs;
  auto link = request->link.lock();
  if (!link || !link->is_open()) return;
  wire::FrameHeader header;
  memcpy(&header, request->frame.data(), sizeof header);
  auto bytes = static_cast<uint32_t>(request->reply_bytes - sizeof header);
  wire::FrameHeader head = wire::make_header(static_cast<wire::Op>(header.op), wire::kFlagReply, header.request, bytes);
  head.crc = wire::crc32c(wire::header_crc(head), request->reply.get() + sizeof head, bytes);
  memcpy(request->reply.get(), &head, sizeof head);
  link->send_local({request->reply.get(), request->reply_bytes});
}

void RemoteRegion::abandon(uint64_t now) {
  bool begins = state_ == State::kTogether;
  if (begins) {
    log(LogLevel::kInfo, "one-sided access to a memory server has ended; its pages go over TCP meanwhile");
    state_ = State::kRevoking;
    not_before_ns_ = now + pause_ns_;
    pause_ns_ = std::min(2 * pause_ns_, kLastPauseNs);
  }
  for (auto& request : requests_) {
    if (std::exchange(request->abandoned, true)) continue;
    auto link = request->link.lock();
    if (!link || !link->is_open()) continue;
    if (request->is_write) repetitions_.push_back({request->link, request->frame});
    else link->send_remote(request->frame);
  }
  disconnect();
  if (begins) revoke_was_lost();
}

// Asks over another connection, now or when one opens.
void RemoteRegion::revoke_was_lost() {
  revoke_sent_ = false;
  for (RegionLink* link : links_) {
    if (is_to_be_revoked()) link->ask_to_revoke();
  }
}

void RemoteRegion::revoked(uint64_t now) {
  if (state_ != State::kRevoking) return;
  state_ = State::kApart;
  not_before_ns_ = std::max(not_before_ns_, now);
  for (auto& repetition : std::exchange(repetitions_, {})) {
    auto link = repetition.link.lock();
    if (link && link->is_open()) link->repeat(repetition.frame);
  }
  resume_links();
}

// Those whose next write or discard had to wait.
void RemoteRegion::resume_links() {
  if (!may_change()) return;
  for (RegionLink* link : std::vector<RegionLink*>(links_)) link->resume();
}

}  // namespace farside::ucx
