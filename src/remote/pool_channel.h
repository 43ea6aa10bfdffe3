// One thread's channel to all servers of a pool. Requests are split by the servers that hold their slabs. A write
// or discard is sent to every holder of a slab, and completes when all holders that are not lost have acknowledged it;
// a read is sent to one holder. When a server is lost, reads in flight are sent again to other holders, and a write
// succeeds if another holder has acknowledged it.
//
// The data of a write from a pipe for several servers is read into a buffer once, and kept until all have acknowledged.
#pragma once
#include "remote/slab_placement.h"
#include "transport/transport.h"

namespace farside::remote {

class PoolChannel final : public transport::Channel {
 public:
  // Both outlive the channel. The channel to each server is opened when it is first needed.
  PoolChannel(PoolServers* servers, SlabPlacement* placement) : servers_(*servers), placement_(*placement) {}
  ~PoolChannel() override;

  int submit_read(std::span<const transport::Segment> segments, transport::Token* token) override;
  int submit_write(std::span<const transport::Segment> segments, int pipe, transport::Token* token) override;
  int submit_discard(std::span<const transport::Segment> segments, transport::Token* token) override;
  int poll(transport::Token token) override;
  int wait(transport::Token token, uint64_t timeout_ns) override;
  void gather(bool on) override;
  transport::Mapping mapping() const override { return servers_.mapping(); }

 private:
  enum class Kind : uint8_t { kRead, kWrite, kDiscard };

  // A request in flight. The low four bits of the token are the slot's index.
  struct Slot {
    transport::Token token = 0;  // 0: free
    Kind kind;
    bool incomplete;    // a server of this request is lost or refused it
    int error;          // the result of that server
    ServerSet awaited;  // servers that have not replied
    transport::Token asked[kMaxServers];
    size_t count;                  // of segments
    std::byte* staging = nullptr;  // data from a pipe; grows to the slot's largest write
    size_t staging_bytes = 0;
    transport::Segment segments[transport::kMaxSegments];
  };

  int begin(Kind kind, std::span<const transport::Segment> segments, uint64_t max_bytes, Slot** slot);
  int finish_submit(Slot* slot, int sent, transport::Token* token);
  int stage(Slot* slot, int pipe);
  int write_to_one(Slot* slot, unsigned server, int pipe);
  int send(Slot* slot);
  int send_to(Slot* slot, unsigned server, ServerSet lost, int pipe);
  std::span<transport::Segment> part_for(const Slot& slot, unsigned server, ServerSet lost);
  int targets(const Slot& slot, ServerSet lost, ServerSet* all);
  ServerSet targets_of(Kind kind, uint64_t slab, ServerSet lost) const;
  int progress(Slot* slot);
  void ask(Slot* slot, unsigned server);
  void answered(Slot* slot, unsigned server, int result);
  int conclude(Slot* slot);
  bool still_held(const Slot& slot) const;
  transport::Channel* to(unsigned server);
  void close(unsigned server);
  Slot* find(transport::Token token);
  Slot* free_slot();
  void send_held();

  PoolServers& servers_;
  SlabPlacement& placement_;
  transport::Channel* channels_[kMaxServers] = {};
  bool gathers_ = false;
  ServerSet held_ = 0;  // servers whose channels may have gathered requests
  uint64_t sequence_ = 0;
  transport::Segment part_[transport::kMaxSegments];  // the segments for one server, while they are being sent
  Slot slots_[transport::kMaxInFlight];
};

}  // namespace farside::remote
