#include "server/authentication.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/random.h"

namespace farside::server {

using wire::HelloMode;

Outcome Authentication::greet(wire::Bytes payload) {
  int r = wire::decode_hello(payload, &greeting_.hello);
  if (r < 0) return replies_->close(-r, "malformed HELLO");
  // Clients try again: connections may end meanwhile.
  if (refusal_ != Admission::Refusal::kNone) return replies_->close(EAGAIN, text_of(refusal_));
  fill_random(greeting_.challenge.nonce, sizeof greeting_.challenge.nonce);
  return replies_->reply(wire::bytes_of(greeting_.challenge));
}

Outcome Authentication::prove(wire::Bytes payload, Client* client) {
  wire::Proof proof;
  wire::Key key;
  if (wire::decode_proof(payload, &proof) < 0) return replies_->close(EBADMSG, "malformed proof");
  if (auto failed = authenticate(proof, &key, client)) return *failed;
  wire::HelloReply answer = {};
  answer.server = pool_->number();
  if (greeting_.hello.mode != HelloMode::kObserve) {
    if (auto failed = open_region(key, client, &answer)) return *failed;
  }
  wire::mask_secret(key, greeting_, &answer);
  wire::Proof own = wire::server_proof(key, greeting_, answer);
  memcpy(answer.proof, own.proof, sizeof answer.proof);
  return replies_->reply(wire::bytes_of(answer));
}

// Whether the client knows a token, or the secret of the region. Then nothing is returned.
std::optional<Outcome> Authentication::authenticate(const wire::Proof& proof, wire::Key* key, Client* client) {
  const wire::HelloRequest& hello = greeting_.hello;
  bool by_token = hello.mode == HelloMode::kCreate || hello.mode == HelloMode::kObserve;
  if (by_token) {
    client->tenant = tokens_->find(greeting_, proof, key);
    if (client->tenant) return std::nullopt;
    return replies_->close(EACCES, "wrong token");
  }
  auto secret = pool_->secret_of(hello.region);
  if (secret) *key = wire::key_of_secret(secret->data());
  wire::Proof right = wire::client_proof(*key, greeting_);
  if (secret && wire::same_secret(&right, &proof, sizeof right)) return std::nullopt;
  return replies_->close(ENOENT, "no such region; its last connection was closed, or the server restarted");
}

std::optional<Outcome> Authentication::open_region(const wire::Key& key, Client* client, wire::HelloReply* answer) {
  const wire::HelloRequest& hello = greeting_.hello;
  auto found = find_region(key, client->tenant);
  // Memory that was released may still be being freed, so there may be enough.
  if (!found.ok() && found.status().code() == ENOMEM && !pool_->is_tidy()) return Outcome::kUnfinished;
  if (!found.ok()) return replies_->close(found.status().code(), found.status().text());
  Region* region = client->region = *found;
  client->tenant = region->tenant();
  socket_->count_for(&region->client);
  replies_->set_region(region->name().id);
  if (hello.mode == HelloMode::kSnapshot && !client->tenant->may(kMayFork))
    return replies_->close(EPERM, fmt::format("the token {} may not fork", client->tenant->name).c_str());
  note_client(region);
  if (!replaces_older(client)) return replies_->close(ESTALE, "a newer connection has replaced this one");
  answer->region = region->name().id;
  memcpy(answer->secret, region->name().secret, sizeof answer->secret);
  answer->region_bytes = region->bytes();
  bool maps_memory = socket_->is_unix() && hello.mode == HelloMode::kCreate && !pool_->overflow();
  if (!maps_memory) return std::nullopt;
  std::vector<int> files = {region->memory_fd()};
  if (const PackedFile* packed = region->packed()) files.push_back(packed->fd());
  answer->memory_files = static_cast<uint32_t>(files.size());
  socket_->pass(std::move(files));
  region->note_shared();
  return std::nullopt;
}

// key: by which the client proved itself.
Result<Region*> Authentication::find_region(const wire::Key& key, const std::shared_ptr<Tenant>& tenant) {
  const wire::HelloRequest& hello = greeting_.hello;
  if (hello.mode == HelloMode::kAttach) return pool_->attach(hello.region, key.bytes);
  if (hello.mode == HelloMode::kSnapshot) return pool_->snapshot(hello.region, key.bytes);
  if (!tenant->may(kMayCreate)) return Status::error(EPERM, "the token {} may not create regions", tenant->name);
  auto refusal = admission_->enter_region(socket_->fd(), peer_->source);
  if (refusal != Admission::Refusal::kNone) return Status::error(EAGAIN, "{}", text_of(refusal));
  return pool_->create(hello.region_bytes, tenant);
}

// Excludes older connections of the channel. False: a newer one has done so already.
bool Authentication::replaces_older(Client* client) {
  const wire::HelloRequest& hello = greeting_.hello;
  if (hello.channel == 0) return true;
  client->fence = pool_->fence(client->region, hello.channel);
  client->generation = hello.generation;
  return client->fence->advance(hello.generation);
}

void Authentication::note_client(Region* region) {
  bool is_new = greeting_.hello.mode != HelloMode::kAttach;
  log_with(is_new ? LogLevel::kInfo : LogLevel::kDebug, {{"peer", peer_->name}, {"region", region->name().id}}, "{}",
           is_new ? "client connected" : "connection opened");
  if (is_new) pool_->set_client(region, peer_->name, peer_->source);
}

}  // namespace farside::server
