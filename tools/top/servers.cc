#include "tools/top/servers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/size.h"
#include "report/format.h"

namespace farside::top {
namespace {

constexpr const char* kDuration = "farside_server_request_duration_seconds";

double sum_of(const Metrics& metrics, const std::string& name) {
  double sum = 0;
  if (auto found = metrics.find(name); found != metrics.end()) {
    for (const MetricSample& sample : found->second) sum += sample.value;
  }
  return sum;
}

double gained(const Metrics& now, const Metrics& before, const std::string& name) {
  return std::max(0.0, sum_of(now, name) - sum_of(before, name));
}

// By the bound of a bucket: what was not above it, of all operations together.
std::map<double, double> durations(const Metrics& metrics) {
  std::map<double, double> counts;
  if (auto found = metrics.find(std::string(kDuration) + "_bucket"); found != metrics.end()) {
    for (const MetricSample& sample : found->second) {
      auto bound = sample.labels.find("le");
      if (bound != sample.labels.end()) counts[strtod(bound->second.c_str(), nullptr)] += sample.value;
    }
  }
  return counts;
}

double p99_us(const Metrics& now, const Metrics& before) {
  std::map<double, double> counts = durations(now);
  for (auto [bound, count] : durations(before)) counts[bound] -= count;
  double finite = 0;
  for (auto [bound, count] : counts) {
    if (std::isfinite(bound)) finite = bound;
    if (count >= 0.99 * counts.rbegin()->second) break;
  }
  return 1e6 * finite;
}

uint64_t bytes_of(double value) { return static_cast<uint64_t>(value); }

ServerRow server_row(const std::string& server, const Metrics& now, const Metrics& before, double seconds) {
  std::string prefix = "farside_server_", duration = kDuration;
  auto value = [&](const char* name) { return bytes_of(value_of(now, prefix + name)); };
  ServerRow row = {.server = server,
                   .part = "",
                   .clients = value("connections"),
                   .lent = value("capacity_bytes"),
                   .reserved = value("reserved_bytes"),
                   .stored = value("stored_bytes"),
                   .used = value("used_bytes"),
                   .overflow = value("overflow_bytes")};
  double operations = gained(now, before, duration + "_count");
  if (before.empty() || seconds <= 0 || operations == 0) return row;
  row.operations = operations / seconds;
  row.bytes =
      (gained(now, before, prefix + "received_bytes_total") + gained(now, before, prefix + "sent_bytes_total")) /
      seconds;
  row.mean_us = 1e6 * gained(now, before, duration + "_sum") / operations;
  row.p99_us = p99_us(now, before);
  return row;
}

// One row for each value of a label, with the metrics that have it.
void add_parts(const std::string& server, const Metrics& metrics, const std::string& label,
               const std::vector<std::pair<std::string, uint64_t ServerRow::*>>& columns,
               std::vector<ServerRow>* rows) {
  std::map<std::string, ServerRow> parts;
  for (const auto& [name, member] : columns) {
    auto found = metrics.find(name);
    if (found == metrics.end()) continue;
    for (const MetricSample& sample : found->second) {
      auto part = sample.labels.find(label);
      if (part != sample.labels.end()) parts[part->second].*member = bytes_of(sample.value);
    }
  }
  for (auto& [part, row] : parts) {
    row.server = server;
    row.part = part;
    rows->push_back(row);
  }
}

std::string or_none(bool exists, const std::string& text) { return exists ? text : "-"; }

std::vector<std::string> cells(const ServerRow& row) {
  bool whole = row.part.empty();
  return {whole ? row.server : "  " + row.part,
          or_none(whole || row.clients > 0, std::to_string(row.clients)),
          or_none(row.lent > 0, format_size(row.lent)),
          format_size(row.reserved),
          format_size(row.stored),
          or_none(whole, format_size(row.used)),
          or_none(row.overflow > 0, format_size(row.overflow)),
          or_none(whole, fmt::format("{:.0f}", row.operations)),
          or_none(whole, format_size(bytes_of(row.bytes))),
          or_none(row.mean_us > 0, fmt::format("{:.1f} us", row.mean_us)),
          or_none(row.p99_us > 0, fmt::format("{:.0f} us", row.p99_us))};
}

}  // namespace

std::vector<ServerRow> rows_of(const std::string& server, const Metrics& now, const Metrics& before, double seconds) {
  std::vector<ServerRow> rows = {server_row(server, now, before, seconds)};
  add_parts(server, now, "tenant",
            {{"farside_server_tenant_regions", &ServerRow::clients},
             {"farside_server_tenant_reserved_bytes", &ServerRow::reserved},
             {"farside_server_tenant_stored_bytes", &ServerRow::stored}},
            &rows);
  add_parts(server, now, "server",
            {{"farside_controller_server_capacity_bytes", &ServerRow::lent},
             {"farside_controller_server_reserved_bytes", &ServerRow::reserved},
             {"farside_controller_server_stored_bytes", &ServerRow::stored}},
            &rows);
  return rows;
}

std::string to_text(const std::vector<ServerRow>& rows) {
  std::vector<std::vector<std::string>> table = {
      {"SERVER", "CLIENTS", "LENT", "RESERVED", "STORED", "USED", "IN FILE", "OPS/S", "BYTES/S", "MEAN", "P99"}};
  for (const ServerRow& row : rows) {
    if (row.replies) table.push_back(cells(row));
    else table.push_back({row.server, "does not reply", "", "", "", "", "", "", "", "", ""});
  }
  return format_table(table);
}

nlohmann::json to_json(const ServerRow& row) {
  return {{"server", row.server},
          {"part", row.part},
          {"replies", row.replies},
          {"clients", row.clients},
          {"lent_bytes", row.lent},
          {"reserved_bytes", row.reserved},
          {"stored_bytes", row.stored},
          {"used_bytes", row.used},
          {"overflow_bytes", row.overflow},
          {"operations_per_second", row.operations},
          {"bytes_per_second", row.bytes},
          {"mean_us", row.mean_us},
          {"p99_us", row.p99_us}};
}

ServerSampler::ServerSampler(const std::string& addresses) {
  std::istringstream words(addresses);
  for (std::string address; std::getline(words, address, ',');) servers_.push_back({address});
}

void ServerSampler::look() {
  rows_.clear();
  for (Server& server : servers_) {
    auto now = std::chrono::steady_clock::now();
    Result<Metrics> metrics = fetch_metrics(server.address);
    if (!metrics.ok()) {
      rows_.push_back({.server = server.address, .part = "", .replies = false});
      continue;
    }
    double seconds = std::chrono::duration<double>(now - server.seen).count();
    for (ServerRow& row : rows_of(server.address, *metrics, server.metrics, seconds)) rows_.push_back(std::move(row));
    server.metrics = std::move(*metrics);
    server.seen = now;
  }
}

}  // namespace farside::top
