// One thread's channel to all servers of a PoolStore. Requests are split where slabs lie on different servers; writes
// and discards go to every holder of a slab and are complete when all that live have acknowledged; reads go to one.
// When a server is lost, a read under way is sent anew to others, and a write counts where another holder has taken it.
//
// A write from a pipe that more than one server is to get is read once, into a buffer that lives until all have
// acknowledged it.
#pragma once
#include "remote/pool_store.h"
#include "transport/transport.h"

namespace farside::remote {

class PoolChannel final : public transport::Channel {
 public:
  // The store outlives the channel. Channels to the servers are opened when they are needed.
  explicit PoolChannel(PoolStore* store) : store_(store) {}
  ~PoolChannel() override;

  int submit_read(std::span<const transport::Segment> segments, transport::Token* token) override;
  int submit_write(std::span<const transport::Segment> segments, int pipe, transport::Token* token) override;
  int submit_discard(std::span<const transport::Segment> segments, transport::Token* token) override;
  int poll(transport::Token token) override;
  int wait(transport::Token token, uint64_t timeout_ns) override;
  void gather(bool on) override;
  transport::Mapping mapping() const override { return store_->mapping(); }

 private:
  enum class Kind : uint8_t { kRead, kWrite, kDiscard };

  // A request under way. The token's low four bits are the slot's index.
  struct Slot {
    transport::Token token = 0;  // 0: free
    Kind kind;
    bool incomplete;    // a server that was asked is lost
    int error;          // what such a server answered
    ServerSet awaited;  // servers that have not answered
    transport::Token asked[kMaxServers];
    size_t count;                  // of segments
    std::byte* staging = nullptr;  // what came from a pipe; as large as the largest one of the slot
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

  PoolStore* store_;
  transport::Channel* channels_[kMaxServers] = {};
  bool gathers_ = false;
  ServerSet held_ = 0;  // servers whose channels may hold requests back
  uint64_t sequence_ = 0;
  transport::Segment part_[transport::kMaxSegments];  // what goes to one server, while it is being sent
  Slot slots_[transport::kMaxInFlight];
};

}  // namespace farside::remote
