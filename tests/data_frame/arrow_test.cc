// Arrow's C data interface: export and import of every type, offsets, alignment, lifetimes, and what is refused.
#include <gtest/gtest.h>

#include "table.h"

namespace farside::testing {
namespace {

using frame::column, frame::type_id;

template <typename T>
void expect_round_trip(const values<T>& from, frame::data_type type) {
  ArrowSchema schema;
  ArrowArray array;
  frame::export_column("c", column_of(from, type), &schema, &array);
  EXPECT_EQ(array.length, static_cast<int64_t>(from.size()));
  for (int64_t b = 0; b < array.n_buffers; b++) EXPECT_EQ(reinterpret_cast<uintptr_t>(array.buffers[b]) % 64, 0u);
  column found = frame::import_column(&schema, &array);
  EXPECT_FALSE(schema.release || array.release);
  EXPECT_EQ(found.type(), type);
  EXPECT_EQ(values_of<T>(found), from);
}

TEST(Arrow, EveryTypeMakesARoundTrip) {
  std::mt19937_64 random(1);
  for (size_t rows : {0, 1, 64, 1000}) {
    for (bool has_nulls : {false, true}) {
      auto check = [&]<typename T>(T, frame::data_type type) {
        expect_round_trip(random_values<T>(random, rows, has_nulls), type);
      };
      check(int8_t{}, {type_id::int8});
      check(int16_t{}, {type_id::int16});
      check(int32_t{}, {type_id::int32});
      check(int64_t{}, {type_id::int64});
      check(uint8_t{}, {type_id::uint8});
      check(uint16_t{}, {type_id::uint16});
      check(uint32_t{}, {type_id::uint32});
      check(uint64_t{}, {type_id::uint64});
      check(float{}, {type_id::float32});
      check(double{}, {type_id::float64});
      check(bool{}, {type_id::boolean});
      check(int32_t{}, {type_id::date32});
      check(int64_t{}, {type_id::timestamp, frame::time_unit::nanosecond, "Europe/Berlin"});
      check(int64_t{}, {type_id::timestamp, frame::time_unit::second});
      check(std::string{}, {type_id::utf8});
    }
  }
}

TEST(Arrow, Formats) {
  auto format_of = [](frame::data_type type) { return frame::arrow::format_of(type); };
  EXPECT_EQ(format_of({type_id::boolean}), "b");
  EXPECT_EQ(format_of({type_id::uint8}), "C");
  EXPECT_EQ(format_of({type_id::uint64}), "L");
  EXPECT_EQ(format_of({type_id::date32}), "tdD");
  EXPECT_EQ(format_of({type_id::timestamp, frame::time_unit::microsecond, "UTC"}), "tsu:UTC");
  EXPECT_EQ(format_of({type_id::utf8}), "u");
}

// An array that belongs to the test, as another library would make it.
struct Foreign {
  ArrowSchema schema = {};
  ArrowArray array = {};
  std::vector<const void*> buffers;
  int schemas_released = 0, arrays_released = 0;

  Foreign(const char* format, int64_t length, std::vector<const void*> b) : buffers(std::move(b)) {
    schema.format = format;
    schema.name = "c";
    schema.private_data = &schemas_released;
    schema.release = [](ArrowSchema* s) {
      ++*static_cast<int*>(s->private_data);
      s->release = nullptr;
    };
    array.length = length;
    array.null_count = -1;
    array.n_buffers = static_cast<int64_t>(buffers.size());
    array.buffers = buffers.data();
    array.private_data = &arrays_released;
    array.release = [](ArrowArray* a) {
      ++*static_cast<int*>(a->private_data);
      a->release = nullptr;
    };
  }
  void expect_refused() {
    EXPECT_THROW(frame::import_column(&schema, &array), std::invalid_argument);
    EXPECT_EQ(schemas_released, 1);
    EXPECT_EQ(arrays_released, 1);
  }
};

TEST(Arrow, ImportHonoursOffsetsAndUnalignedBuffers) {
  std::mt19937_64 random(2);
  auto bits = random_values<bool>(random, 300, true);
  auto texts = random_values<std::string>(random, 300, true);
  column b = column_of(bits), t = column_of(texts);
  for (int64_t offset : {0, 1, 7, 8, 63, 100}) {
    for (int64_t length : {0, 1, 8, 65, 200}) {
      Foreign f("b", length, {b.view().validity, b.view().values});
      f.array.offset = offset;
      EXPECT_EQ(values_of<bool>(frame::import_column(&f.schema, &f.array)),
                values<bool>(bits.begin() + offset, bits.begin() + offset + length));
      Foreign u("u", length, {t.view().validity, t.view().values, t.view().text});
      u.array.offset = offset;
      EXPECT_EQ(values_of<std::string>(frame::import_column(&u.schema, &u.array)),
                values<std::string>(texts.begin() + offset, texts.begin() + offset + length));
    }
  }
  std::vector<char> bytes(1 + 4 * sizeof(int64_t));
  for (int64_t i = 0; i < 4; i++) memcpy(bytes.data() + 1 + i * 8, &i, sizeof i);
  Foreign odd("l", 3, {nullptr, bytes.data() + 1});
  odd.array.offset = 1;
  EXPECT_EQ(values_of<int64_t>(frame::import_column(&odd.schema, &odd.array)), (values<int64_t>{1, 2, 3}));
  EXPECT_EQ(odd.arrays_released, 1);
}

TEST(Arrow, RefusesWhatItCannotHold) {
  int32_t numbers[4] = {};
  Foreign("+l", 1, {nullptr, numbers}).expect_refused();
  Foreign("U", 1, {nullptr, numbers, numbers}).expect_refused();
  Foreign("d:10,2", 1, {nullptr, numbers}).expect_refused();
  Foreign("tsx:", 1, {nullptr, numbers}).expect_refused();
  Foreign("i", 1, {nullptr}).expect_refused();
  Foreign("i", 1, {nullptr, nullptr}).expect_refused();
  Foreign("i", -1, {nullptr, numbers}).expect_refused();
  Foreign("i", std::numeric_limits<int64_t>::max(), {nullptr, numbers}).expect_refused();
  Foreign dictionary("i", 1, {nullptr, numbers}), child("i", 1, {nullptr, numbers});
  dictionary.schema.dictionary = &child.schema;
  dictionary.expect_refused();
  ArrowSchema* children[] = {&child.schema};
  Foreign nested("i", 1, {nullptr, numbers});
  nested.schema.n_children = 1;
  nested.schema.children = children;
  nested.expect_refused();
  int32_t decreasing[] = {0, 5, 3}, negative[] = {-1, 0, 0};
  Foreign("u", 2, {nullptr, decreasing, "abcdef"}).expect_refused();
  Foreign("u", 2, {nullptr, negative, "abcdef"}).expect_refused();
}

data_frame two_columns() {
  data_frame made;
  made.add("n", column_of(values<int32_t>{1, {}, 3}));
  made.add("t", column_of(values<std::string>{"a", "bc", {}}));
  return made;
}

TEST(Arrow, DataFramesMakeARoundTrip) {
  ArrowSchema schema;
  ArrowArray array;
  two_columns().export_arrow(&schema, &array);  // the data frame is gone, the buffers are not
  EXPECT_STREQ(schema.format, "+s");
  EXPECT_STREQ(schema.children[1]->name, "t");
  EXPECT_EQ(array.children[0]->null_count, 1);
  array.offset = 1, array.length = 2;  // a slice of the batch
  data_frame found = data_frame::import_arrow(&schema, &array);
  EXPECT_FALSE(schema.release || array.release);
  EXPECT_EQ(values_of<int32_t>(found["n"]), (values<int32_t>{{}, 3}));
  EXPECT_EQ(values_of<std::string>(found["t"]), (values<std::string>{"bc", {}}));
}

TEST(Arrow, ChildrenMayBeMovedOut) {
  ArrowSchema schema;
  ArrowArray array;
  two_columns().export_arrow(&schema, &array);
  ArrowSchema type = *schema.children[1];
  ArrowArray data = *array.children[1];
  schema.children[1]->release = nullptr;
  array.children[1]->release = nullptr;
  schema.release(&schema);
  array.release(&array);
  EXPECT_EQ(values_of<std::string>(frame::import_column(&type, &data)), (values<std::string>{"a", "bc", {}}));
}

TEST(Arrow, RecordBatchesThatAreRefusedAreReleased) {
  ArrowSchema schema;
  ArrowArray array;
  two_columns().export_arrow(&schema, &array);
  array.length = 4;  // longer than its columns
  EXPECT_THROW(data_frame::import_arrow(&schema, &array), std::invalid_argument);
  EXPECT_FALSE(schema.release || array.release);
  two_columns().export_arrow(&schema, &array);
  uint8_t validity = 5;
  array.buffers[0] = &validity;
  array.null_count = 1;
  EXPECT_THROW(data_frame::import_arrow(&schema, &array), std::invalid_argument);
  EXPECT_FALSE(schema.release || array.release);
  frame::export_column("c", column_of(values<int32_t>{1}), &schema, &array);
  EXPECT_THROW(data_frame::import_arrow(&schema, &array), std::invalid_argument);
}

}  // namespace
}  // namespace farside::testing
