// The structs that clients, memory servers and controllers exchange; docs/internals/wire.md describes their use. All
// integers are little-endian; structs have no padding; reserved bytes are zero, and receivers check that they are.
//
// A frame:
//    0        4    5    6       8                16         20       24
//    +--------+----+----+-------+----------------+----------+--------+-----------------
//    | magic  |ver | op | flags |   request id   | payload  | crc32c | payload ...
//    +--------+----+----+-------+----------------+----------+--------+-----------------
// The checksum covers the first 20 bytes and the payload. A reply has the request's id, kFlagReply, and the request's
// op or kError. A reply to kStats with the number 0 and no payload: the answer that the server gave last over this
// connection is not true any more.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

namespace farside::wire {

static_assert(std::endian::native == std::endian::little, "the wire structs are used in place");

inline constexpr uint32_t kMagic = 0x46535246;  // "FRSF" as bytes
inline constexpr uint8_t kVersion = 11;
inline constexpr uint16_t kFlagReply = 1;

enum class Op : uint8_t {
  kHello = 1,      // HelloRequest -> Challenge; the first frame of every connection, and only the first
  kRead = 2,       // list -> the bytes of its ranges, in order
  kWrite = 3,      // list, then the bytes -> empty
  kDiscard = 4,    // list -> empty; the ranges read as zero from now on
  kGrow = 5,       // ReserveRequest -> ReserveReply
  kShrink = 6,     // ReserveRequest -> ReserveReply
  kStats = 7,      // empty -> StatsReply
  kPing = 8,       // empty -> empty
  kError = 9,      // only as a reply: ErrorReply
  kRegister = 10,  // to a controller: ServerReport -> RegisterReply; sent by servers about once a second
  kServers = 11,   // to a controller: empty -> ServersReply
  kConnect = 12,   // empty, no reply: the socket passed with it is a new connection (Unix sockets only)
  kProve = 13,     // Proof -> HelloReply; the second frame of every connection, and only the second
  kCallOpen = 14,  // CallOpen -> CallLimits; from now on the connection is for calls only
  kCallCode = 15,  // CallCode, then a part of the file -> CallCodeReply
  kCall = 16,      // CallRequest, its ranges, the arguments -> CallReply, then the result
  kShare = 17,     // ShareRequest -> ShareReply: one-sided access to a slab of the region
  kRevoke = 18,    // empty -> empty; ends all one-sided access to the region, before the reply
  kCordon = 19,    // to a controller: CordonRequest -> empty; by an operator
  kCopies = 20,  // to a controller: CopiesReport -> empty; sent by clients about once a second while copies are missing
};
inline constexpr Op kLastOp = Op::kCopies;
inline constexpr size_t kOps = static_cast<size_t>(kLastOp) + 1;

struct FrameHeader {
  uint32_t magic;
  uint8_t version;
  uint8_t op;
  uint16_t flags;
  uint64_t request;
  uint32_t payload_bytes;
  uint32_t crc;
};
static_assert(sizeof(FrameHeader) == 24 && offsetof(FrameHeader, crc) == 20);
inline constexpr size_t kCheckedHeaderBytes = offsetof(FrameHeader, crc);

// A list of ranges: ListHeader, then `count` ByteRanges, then (kWrite) the bytes of all ranges in order.
//    0        4        8                16               24
//    +--------+--------+----------------+----------------+----
//    | count  |  zero  |  offset        |  bytes         | ...
//    +--------+--------+----------------+----------------+----
struct ListHeader {
  uint32_t count;
  uint32_t zero;
};
struct ByteRange {
  uint64_t offset;
  uint64_t bytes;
};
static_assert(sizeof(ListHeader) == 8 && sizeof(ByteRange) == 16);

inline constexpr uint32_t kMaxRanges = 256;
inline constexpr uint64_t kMaxDataBytes = 1024 * 1024;          // of one kRead or kWrite
inline constexpr uint64_t kMaxRegionBytes = uint64_t{1} << 46;  // 64 TiB
inline constexpr uint64_t kPageBytes = 4096;                    // unit of snapshots and of accounting
inline constexpr uint64_t kSlabBytes = 16 * 1024 * 1024;        // unit of reservations
inline constexpr size_t kListBytes = sizeof(ListHeader) + kMaxRanges * sizeof(ByteRange);

// Calls of functions that the server executes next to the data. A server that executes none refuses kCallOpen with
// ENOTSUP.
inline constexpr uint32_t kMaxCallRanges = 256;
inline constexpr uint32_t kMaxCallBytes = 1024 * 1024;  // of the arguments, and of the result
inline constexpr uint32_t kMaxCallObjects = 8;          // programs and shared objects of one connection

struct CallOpen {
  uint64_t base;     // the client's address of the region's byte 0
  uint64_t process;  // the number of the client's process that executes calls of this connection
};
struct CallLimits {
  uint64_t max_code_bytes;  // of one object
  uint64_t wall_ns;         // of one call
};
static_assert(sizeof(CallOpen) == 16 && sizeof(CallLimits) == 16);
inline constexpr unsigned kMaxCallProcesses = 16;  // of a client

// A part of an object: a program or shared object without what is not loaded. Parts are sent in order; a first request
// without any asks whether the server has the object.
struct CallCode {
  uint8_t hash[32];  // SHA-256 of the object
  uint64_t bytes;    // of the object
  uint64_t offset;   // of the part
};
struct CallCodeReply {
  uint32_t complete;  // 1: the server has the object
  uint32_t object;    // then its number for this connection
};
static_assert(sizeof(CallCode) == 48 && sizeof(CallCodeReply) == 8);

// The function and its entry: object numbers, and offsets from the addresses at which the objects are loaded. The
// ranges are disjoint, in order, and consist of whole pages of the region.
struct CallRange {
  uint64_t offset;
  uint64_t bytes;
  uint64_t written;  // 0 or 1
};
struct CallRequest {
  uint32_t entry_object, function_object;
  uint64_t entry, function;  // function 0: none
  uint32_t range_count;
  uint32_t argument_bytes;
};
static_assert(sizeof(CallRange) == 24 && sizeof(CallRequest) == 32);

// After an error, the result is its text.
struct CallReply {
  int32_t status;    // 0 or a negative errno value
  uint32_t started;  // 0: the function was not called, and the written ranges are as they were
  uint32_t result_bytes;
  uint32_t zero;
};
static_assert(sizeof(CallReply) == 16);

inline constexpr size_t kMaxPayload = sizeof(CallRequest) + kMaxCallRanges * sizeof(CallRange) +
                                      (kMaxDataBytes > kMaxCallBytes ? kMaxDataBytes : kMaxCallBytes);
static_assert(kMaxPayload >= kListBytes + kMaxDataBytes);

// Both sides prove that they know a key, which is never sent: a token, or the secret of the region (auth.h).
enum class HelloMode : uint32_t {
  kCreate = 1,  // by a token; region_bytes: a new empty region
  kAttach = 2,  // by the region's secret; region, channel, generation: one more connection to a region
  kSnapshot =
      3,  // by the region's secret; region: a new copy-on-write child of that region; this is its first connection
  kObserve = 4,  // by a token: no region, for kStats, kPing, kRegister, kServers and kCordon
};

inline constexpr size_t kSecretBytes = 16;
inline constexpr size_t kMaxToken = 128;
inline constexpr size_t kNonceBytes = 32;  // random, of one connection
inline constexpr size_t kProofBytes = 32;  // HMAC-SHA-256

//    0      4      8               16        24        32           40               72
//    +------+------+---------------+---------+---------+------------+----------------+
//    | mode | zero | region_bytes  | region  | channel | generation | nonce[32]      |
//    +------+------+---------------+---------+---------+------------+----------------+
// channel: a number chosen by the client for a sequence of connections, each of which replaces the previous one;
// generation numbers them, from 1. After the HelloReply, the server executes no requests of older generations of the
// channel. Both 0: a connection that is never replaced.
struct HelloRequest {
  HelloMode mode;
  uint32_t zero;
  uint64_t region_bytes;
  uint64_t region;
  uint64_t channel;
  uint64_t generation;
  uint8_t nonce[kNonceBytes];
};
static_assert(sizeof(HelloRequest) == 72);

struct Challenge {
  uint8_t nonce[kNonceBytes];
};
struct Proof {
  uint8_t proof[kProofBytes];
};
static_assert(sizeof(Challenge) == 32 && sizeof(Proof) == 32);

// secret: of the region, encrypted with the key of the connection. server: random, of the server since its start, the
// same at all its addresses. memory_files: so many descriptors are passed with the reply (Unix sockets, kCreate only):
// of the region's memory file, and of the second file if the server compresses pages (packed/layout.h). proof: of the
// server.
//    0         8            24              32        40      44     48              80
//    +---------+------------+---------------+---------+-------+------+---------------+
//    | region  | secret[16] | region_bytes  | server  | files | zero | proof[32]     |
//    +---------+------------+---------------+---------+-------+------+---------------+
inline constexpr uint32_t kMaxMemoryFiles = 2;
struct HelloReply {
  uint64_t region;
  uint8_t secret[kSecretBytes];
  uint64_t region_bytes;
  uint64_t server;
  uint32_t memory_files;
  uint32_t zero;
  uint8_t proof[kProofBytes];
};
static_assert(sizeof(HelloReply) == 80);

struct ReserveRequest {
  uint64_t bytes;     // a multiple of kSlabBytes, not 0
  uint64_t sequence;  // increases with each request for a region; not larger than the last one granted: a repetition
};
struct ReserveReply {
  uint64_t reserved;  // of the region, after the request
};
static_assert(sizeof(ReserveRequest) == 16 && sizeof(ReserveReply) == 8);

// One-sided access to one slab of a region, by UCX (docs/decisions/0034-ucx.md). Errors: EAGAIN, not yet: the slab has
// no data, or the access is being prepared; EBUSY, the region is a snapshot's; ENOSPC, as many slabs as are reserved
// are shared; EIO, it failed; ENOTSUP, this server has no UCX.
struct ShareRequest {
  uint64_t offset;  // of the slab, a multiple of kSlabBytes
};
//    0        8          16              24             28          32                32 + 3072     4096
//    +--------+----------+---------------+--------------+-----------+-----------------+--------------+
//    | epoch  | address  | live_overlays | worker_bytes | key_bytes | worker          | key          |
//    +--------+----------+---------------+--------------+-----------+-----------------+--------------+
inline constexpr size_t kWorkerAddressBytes = 3072;
inline constexpr size_t kRemoteKeyBytes = 992;
struct ShareReply {
  uint64_t epoch;          // replies with the same epoch have the same worker; 0: none
  uint64_t address;        // of the slab's first byte, in the worker's process
  uint64_t live_overlays;  // of the region; see RegionTrailer
  uint32_t worker_bytes, key_bytes;
  uint8_t worker[kWorkerAddressBytes];  // the address of a UCX worker, zero filled
  uint8_t key[kRemoteKeyBytes];         // a packed remote key of UCX, zero filled
};
static_assert(sizeof(ShareRequest) == 8 && sizeof(ShareReply) == 4096);

// Of the whole server. The fields from `reads` on count since its start.
struct StatsReply {
  uint64_t capacity_bytes, charged_bytes, stored_bytes;
  uint64_t clients, regions, snapshots;
  uint64_t reads, writes, discards;
  uint64_t bytes_in, bytes_out;
  uint64_t refused_tokens, bad_frames, refused_requests;
  uint64_t draining;  // 1: clients are to move their data to other servers
};
static_assert(sizeof(StatsReply) == 15 * 8);

// What an operator wants of a server.
enum class Order : uint32_t {
  kNone = 0,
  kCordon = 1,  // it gets no new slabs
  kDrain = 2,   // nor keeps those that it has: programs move them to other servers
};

// A memory server's report about itself to a controller.
//    0             104       136    144        152      160       168       172        176
//    +-------------+---------+------+----------+--------+---------+---------+----------+
//    | address     | zone    | lent | reserved | stored | clients | leaving | order    |
//    +-------------+---------+------+----------+--------+---------+---------+----------+
inline constexpr size_t kAddressBytes = 104;
inline constexpr size_t kZoneBytes = 32;
struct ServerReport {
  char address[kAddressBytes];      // for clients, "tcp://host:port"; printable, padded with at least one zero
  char zone[kZoneBytes];            // what fails together has the same one; likewise; empty: none
  uint64_t lent, reserved, stored;  // bytes
  uint64_t clients;                 // regions
  uint32_t leaving;                 // 1: it accepts no new slabs, and stops when its clients have ended
  Order order;                      // as the last reply to a report said
};
static_assert(sizeof(ServerReport) == 176);

// What the server is to report from now on.
struct RegisterReply {
  Order order;
  uint32_t zero;
};
static_assert(sizeof(RegisterReply) == 8);

// Copies that a client's slabs lack, on servers that are not lost and do not drain, and that it makes.
inline constexpr uint64_t kUnknownEnd = ~uint64_t{0};
struct CopiesReport {
  uint64_t client;    // a random number of the process, not 0
  uint64_t degraded;  // slabs with fewer copies than the client wants
  uint64_t repaired;  // copies made so far
  uint64_t left_ms;   // until no slab is degraded; kUnknownEnd: no copy is being made
};
static_assert(sizeof(CopiesReport) == 32);

// Those of all clients with degraded slabs.
struct PoolCopies {
  uint64_t clients, degraded, repaired;
  uint64_t left_ms;  // the longest
};

struct CordonRequest {
  char address[kAddressBytes];  // of a server in the list
  Order order;
  uint32_t zero;
};
static_assert(sizeof(CordonRequest) == 112);

enum class ServerState : uint32_t {
  kUp = 1,
  kLeaving = 2,
  kSilent = 3,    // its reports are missing: it failed or is unreachable
  kCordoned = 4,  // it gets no new slabs until an operator ends that
  kDraining = 5,  // likewise, and programs move what they have there
};

inline constexpr uint32_t kMaxPoolServers = 64;
struct ServerEntry {
  ServerReport report;  // the last one
  ServerState state;
  uint32_t silent_ms;  // since that report
};
struct ServersReply {
  uint32_t count;
  uint32_t zero;
  PoolCopies copies;
  ServerEntry servers[kMaxPoolServers];  // the first `count`, then zeros
};
static_assert(sizeof(ServerEntry) == 184 && sizeof(ServersReply) == 40 + 64 * 184);

//    0      4            8                      128
//    +------+------------+----------------------+
//    | code | text_bytes | text, zero filled    |
//    +------+------------+----------------------+
struct ErrorReply {
  uint32_t code;  // an errno value of Linux, 1 .. 4095
  uint32_t text_bytes;
  char text[120];
};
static_assert(sizeof(ErrorReply) == 128);

// The page after a region's bytes in its memory file, for clients that map the file. The server writes it, clients only
// read it. While live_overlays, the number of snapshots, is not 0, clients must send writes and discards to the server,
// which first saves the old content for the snapshots.
struct RegionTrailer {
  uint64_t live_overlays;
  uint8_t zero[kPageBytes - 8];
};
static_assert(sizeof(RegionTrailer) == kPageBytes);

}  // namespace farside::wire
