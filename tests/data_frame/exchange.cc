// A shared object that DuckDB's and pyarrow's side of a test loads: runs a query on a record batch that another library
// made, and exports the result. 0, or -1 and a message.
#include <cstdio>
#include <cstring>

#include "queries.h"

using farside::data_frame;

extern "C" int farside_exchange(const char* query, ArrowSchema* schema, ArrowArray* array, ArrowSchema* result_schema,
                                ArrowArray* result, char* message, size_t bytes) {
  try {
    farside::testing::run(data_frame::import_arrow(schema, array), query, farside::frame::placement::automatic)
        .export_arrow(result_schema, result);
    return 0;
  } catch (const std::exception& thrown) {
    snprintf(message, bytes, "%s", thrown.what());
    return -1;
  }
}
