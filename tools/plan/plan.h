// The program farside-plan, which `farside plan` executes.
#pragma once

namespace farside::plan {

int run_plan(int argc, const char* const* argv);

}  // namespace farside::plan
