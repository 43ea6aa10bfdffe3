#include "preload/heap/refusals.h"

#include <atomic>
#include <cerrno>

#include "base/log.h"

namespace farside::preload {
namespace {

std::atomic<uint64_t> g_count{0};
std::atomic<bool> g_printed{false};

}  // namespace

void note_refusal(const Status& reason, size_t bytes) {
  g_count.fetch_add(1, std::memory_order_relaxed);
  if (g_printed.exchange(true)) return;
  if (reason.code() == ECONNRESET)
    return log(LogLevel::kError, "no far memory can be reserved: {}. The program gets ENOMEM", reason.text());
  log(LogLevel::kError,
      "far memory is full: {} more bytes cannot be reserved ({}); the program gets ENOMEM. Give the run more "
      "(--far-memory), its server (farside serve --memory), or its file (size=)",
      bytes, reason.text());
}

uint64_t refusals() { return g_count.load(std::memory_order_relaxed); }

void forget_refusals() { g_count.store(0); }

}  // namespace farside::preload
