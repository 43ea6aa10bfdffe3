// `farside bench file`: far memory in a file or on a block device, beside kernel swap and a mapped file there. The
// accesses of `bench paging`, by one thread, 16 threads and 16 fibers; then programs: redis, sort, SQLite.
#pragma once
#include "bench/paging.h"
#include "launch/child.h"

namespace farside::bench {

struct FileSettings : PagingSettings {
  std::string place = "/tmp";  // a folder on the disk that is measured, or a block device without data
  bool programs = true;
};

// {"machine", "settings", "cells": [{"workload", "threads", "us": {configuration: summary}}], "miss": {configuration:
// {"median_us", "p99_us"}}, "fibers": {"plain", "hinted": summary of us}, "programs": [{"name", "unit", "native", "far
// file", "kernel swap"}], "skipped": {what: reason}, "goals"}. The caller has no threads.
Result<nlohmann::json> measure_file(const FileSettings& settings);
std::string file_text(const nlohmann::json& document);
// The names that FileSettings::configurations accepts.
std::vector<std::string> file_configurations();
std::vector<Goal> file_goals(const nlohmann::json& document);

}  // namespace farside::bench
