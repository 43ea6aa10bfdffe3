// Metrics of a server, fetched over HTTP and read from Prometheus' text. Ordinary code.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace farside::top {

struct MetricSample {
  std::map<std::string, std::string> labels;
  double value = 0;
};
using Metrics = std::map<std::string, std::vector<MetricSample>>;  // by name

// The value of the metric's only sample; 0: there is none.
double value_of(const Metrics& metrics, const std::string& name);

Metrics parse_metrics(std::string_view text);

// address: HOST:PORT. Waits a second at most.
Result<Metrics> fetch_metrics(const std::string& address);

}  // namespace farside::top
