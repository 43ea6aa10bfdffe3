// What `farside bench replicas` measures: what the second copy of every page costs. The accesses of `bench paging` over
// one server and over two replicas, in turn, over shared memory and tcp.
#pragma once
#include "bench/paging.h"

namespace farside::bench {

// {"machine", "settings", "cells": [{"transport", "workload", "threads", "one_us": summary, "two_us": summary,
// "ratio": summary}]}. A ratio is two replicas' time by one server's in the same repetition.
Result<nlohmann::json> measure_replicas(const PagingSettings& settings);
std::string replicas_text(const nlohmann::json& document);

}  // namespace farside::bench
