// The time of one miss: a dereference of a remote object, compared with a read of the same size by the transport alone.
#include <fmt/format.h>

#include <cstring>

#include "base/clock.h"
#include "base/log.h"
#include "bench/objects/lines.h"
#include "measure/random.h"
#include "measure/statistics.h"

namespace farside::bench::objects_bench {
namespace {

using nlohmann::json;

constexpr uint64_t kMax = 50000;  // accesses; enough for a median

double median_us(std::vector<uint32_t>& ticks_taken) {
  return static_cast<double>(quantile(ticks_taken, 0.5)) / ticks_per_us();
}

template <typename Object>
double time_misses(FarMemory& far, uint64_t bytes, uint64_t accesses) {
  std::vector<unique_ptr<Object>> objects(bytes / sizeof(Object));
  for (uint64_t i = 0; i < objects.size(); i++) objects[i] = make_unique<Object>(Object{{i}});
  settle();
  Random random(3);
  std::vector<uint32_t> misses;
  for (uint64_t i = 0; i < accesses; i++) {
    uint64_t at = random.next() % objects.size();
    uint64_t place = *detail::access::word(objects[at]) >> 16;
    bool is_far = far.pager().table().word(place).is(pager::PageState::kFar);
    deref_scope scope;
    uint64_t start = ticks();
    uint64_t number = objects[at].deref(scope)->words[0];
    if (is_far) misses.push_back(static_cast<uint32_t>(ticks() - start));
    if (number != at) die("object {} contains {}", at, number);
  }
  return median_us(misses);
}

double time_transport(FarMemory& far, uint32_t bytes, uint64_t reads) {
  Status status;
  transport::Channel* channel = far.pager().store()->open_channel(&status);
  if (!channel) die("{}", status.text());
  std::vector<std::byte> buffer(bytes);
  std::vector<uint32_t> took;
  Random random(5);
  for (uint64_t i = 0; i < reads; i++) {
    uint64_t at = random.next() % 4096 * kPageSize;
    uint64_t start = ticks();
    if (transport::Mapping in_place = channel->mapping(); in_place.immediate) {
      memcpy(buffer.data(), in_place.base + at, bytes);
    } else {
      transport::ByteRange range = {at, bytes, buffer.data()};
      transport::Token token = 0;
      if (channel->submit_read({&range, 1}, &token) != 0 || channel->wait(token, 1'000'000'000) != 0)
        die("a read of {} bytes failed", bytes);
    }
    took.push_back(static_cast<uint32_t>(ticks() - start));
  }
  far.pager().store()->close_channel(channel);
  return median_us(took);
}

Result<json> measure(const Setup& setup, const char* transport) {
  auto far = open_for_lines(setup, transport, Configuration::kOneByOne);
  if (!far.ok()) return far.status();
  uint64_t count = std::min(setup.settings().accesses, kMax);
  json figures = {{"line_us", time_misses<Line>(**far, setup.settings().bytes, count)},
                  {"page_us", time_misses<Page>(**far, setup.settings().bytes, count)},
                  {"line_transport_us", time_transport(**far, sizeof(Line), count)},
                  {"page_transport_us", time_transport(**far, sizeof(Page), count)}};
  figures["beyond_us"] = figures["line_us"].get<double>() - figures["line_transport_us"].get<double>();
  return figures;
}

}  // namespace

Suite misses_suite() {
  return {.name = "misses",
          .measurements = each(measure, Axis{"transport", kTransports}),
          .tables = {table("us per miss", {"transport"},
                           {col("64 B", "line_us", 2), col("transport alone", "line_transport_us", 2),
                            col("4 KiB", "page_us", 2), col("transport alone", "page_transport_us", 2)})},
          .targets = {goal("miss of 64 B over {transport}, beyond the transport", "beyond_us", at_most(1.2, " us"))}};
}

}  // namespace farside::bench::objects_bench
