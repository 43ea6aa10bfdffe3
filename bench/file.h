// `farside bench file`: far memory in a file, beside kernel swap to a file of the same file system and a mapping of
// such a file. The accesses of `bench paging`, by one thread and by 16, in turn.
#pragma once
#include "bench/paging.h"

namespace farside::bench {

struct FileSettings : PagingSettings {
  std::string folder = "/tmp";  // on the disk that is measured
};

// {"machine", "settings", "cells": [{"workload", "threads", "us": {configuration: summary}}], "miss": {configuration:
// {"median_us", "p99_us"}}, "skipped": {configuration: reason}}. The caller has no threads.
Result<nlohmann::json> measure_file(const FileSettings& settings);
std::string file_text(const nlohmann::json& document);

}  // namespace farside::bench
