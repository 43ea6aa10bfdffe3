#include "tools/plan/plan.h"

int main(int argc, char** argv) { return farside::plan::run_plan(argc, argv); }
