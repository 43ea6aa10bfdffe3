// `farside bench reads`: what requests cost over tcp, without a pager: their time, and the processor time of client and
// server together. By one thread with several requests in flight, by threads that wait for one request each, and in
// pieces of 2 MiB; with latency added by a proxy.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"

namespace farside::bench {

struct ReadsSettings {
  uint64_t bytes = 0;
  double local = 0;      // not used: nothing is near
  double seconds = 0.5;  // of one measurement
  unsigned repetitions = 3;
  std::vector<unsigned> latencies_us = {0};  // added to each reply
  std::vector<std::string> kinds = {};       // of accesses; empty: all
  bool quiet = false;
};

// "one connection", "threads", ...: the kinds of accesses.
std::vector<std::string> reads_kinds();

// {"machine", "settings", "cells": [{"kind", "in_flight", "latency_us", "us": summary, "client_us": summary,
// "server_us": summary, "processor_us": summary}]}. Of one access, or of one page in pieces. The caller has no threads.
Result<nlohmann::json> measure_reads(const ReadsSettings& settings);
std::string reads_text(const nlohmann::json& document);

}  // namespace farside::bench
