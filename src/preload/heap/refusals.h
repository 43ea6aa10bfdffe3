// Memory that the program does not get because far memory is full. The first refusal is printed with the remedy; all
// are counted, for the report at the end. Thread-safe; the caller may hold locks of the heap.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace farside::preload {

void note_refusal(const Status& reason, size_t bytes);
uint64_t refusals();
// In the child of a fork: the count begins again. What was printed is not printed again.
void forget_refusals();

}  // namespace farside::preload
