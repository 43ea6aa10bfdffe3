// Columns and data frames as structures of Arrow's C data interface (arrow_abi.h), without a library of Arrow. Programs
// use export_arrow and import_arrow of a data frame, or export_column and import_column.
//
// Exports share the buffers, so they are far memory that the consumer reads in place; the consumer calls `release` once
// for each structure, or moves it. Imports copy to far memory, so any alignment and any offset is accepted, and the
// structures are released before the import returns or throws. Not imported: nested types, dictionaries, types that
// frame::type_id lacks, record batches with null rows.
#ifndef FARSIDE_FRAME_ARROW_HPP
#define FARSIDE_FRAME_ARROW_HPP

#include <farside/frame/arrow_abi.h>
#include <farside/frame/column.hpp>

#include <array>

namespace farside::frame {

namespace arrow {

[[noreturn]] inline void refuse(const std::string& name, const std::string& why) {
  throw std::invalid_argument("farside: Arrow column \"" + name + "\" " + why);
}

constexpr const char* kFormats[] = {"b", "c", "s", "i", "l", "C", "S", "I", "L", "f", "g", "tdD", "ts", "u"};
constexpr char kUnits[] = {'s', 'm', 'u', 'n'};

inline std::string format_of(const data_type& type) {
  std::string format = kFormats[static_cast<size_t>(type.id)];
  if (type.id != type_id::timestamp) return format;
  return format + kUnits[static_cast<size_t>(type.unit)] + ":" + type.time_zone;
}
inline data_type type_of_format(const std::string& name, std::string_view format) {
  for (size_t id = 0; id < std::size(kFormats); id++) {
    if (format == kFormats[id] && static_cast<type_id>(id) != type_id::timestamp) return {static_cast<type_id>(id)};
  }
  if (format.size() >= 4 && format.starts_with("ts") && format[3] == ':') {
    for (size_t unit = 0; unit < std::size(kUnits); unit++) {
      if (format[2] == kUnits[unit])
        return {type_id::timestamp, static_cast<time_unit>(unit), std::string(format.substr(4))};
    }
  }
  refuse(name, "has the format \"" + std::string(format) + "\", which a data frame cannot hold; cast it before");
}

// ---- Export. A structure owns its own private data, so that children may be moved out of their parent ----

template <typename Structure>
struct children_of {
  std::vector<std::unique_ptr<Structure>> owned;
  std::vector<Structure*> pointers;

  Structure* add() {
    owned.push_back(std::make_unique<Structure>());
    pointers.push_back(owned.back().get());
    return pointers.back();
  }
  ~children_of() {
    for (Structure* child : pointers) {
      if (child->release) child->release(child);
    }
  }
};

struct schema_data {
  std::string format, name;
  children_of<ArrowSchema> children;
};
struct array_data {
  std::vector<std::shared_ptr<buffer>> owned;
  std::vector<const void*> buffers;
  children_of<ArrowArray> children;
};

template <typename Data, typename Structure>
void release(Structure* structure) {
  delete static_cast<Data*>(structure->private_data);
  structure->release = nullptr;
}

inline void fill(ArrowSchema* schema, std::unique_ptr<schema_data> data, int64_t flags) {
  *schema = {};
  schema->format = data->format.c_str();
  schema->name = data->name.c_str();
  schema->flags = flags;
  schema->n_children = static_cast<int64_t>(data->children.pointers.size());
  schema->children = data->children.pointers.data();
  schema->release = release<schema_data, ArrowSchema>;
  schema->private_data = data.release();
}
inline void fill(ArrowArray* array, std::unique_ptr<array_data> data, int64_t rows, int64_t nulls) {
  *array = {};
  array->length = rows;
  array->null_count = nulls;
  array->n_buffers = static_cast<int64_t>(data->buffers.size());
  array->buffers = data->buffers.data();
  array->n_children = static_cast<int64_t>(data->children.pointers.size());
  array->children = data->children.pointers.data();
  array->release = release<array_data, ArrowArray>;
  array->private_data = data.release();
}

// ---- Import ----

// Releases an imported structure when the import ends.
template <typename Structure>
struct imported {
  explicit imported(Structure* s) : structure(s) {}
  ~imported() {
    if (structure->release) structure->release(structure);
  }
  imported(const imported&) = delete;
  imported& operator=(const imported&) = delete;
  Structure* structure;
};

// Copies bits [offset, offset + count). The other bits of the buffer stay 0.
inline std::shared_ptr<buffer> copy_bits(const void* from, int64_t offset, int64_t count) {
  auto made = buffer::create(bitmap_bytes(count));
  const auto* source = static_cast<const uint8_t*>(from) + offset / 8;
  auto* to = made->as<uint8_t>();
  int64_t shift = offset % 8, last = (shift + count - 1) / 8;  // of the bytes that have wanted bits
  for (int64_t i = 0; i * 8 < count; i++) {
    unsigned high = shift > 0 && i < last ? source[i + 1] : 0u;
    to[i] = static_cast<uint8_t>((source[i] | high << 8) >> shift);
  }
  if (count % 8 != 0) to[count / 8] = static_cast<uint8_t>(to[count / 8] & ((1u << (count % 8)) - 1));
  return made;
}
inline int64_t ones_in(buffer& bits, int64_t count) {
  int64_t ones = 0;
  for (int64_t at = 0; at < count; at += 64) ones += std::popcount(word_at(bits.data(), at));
  return ones;
}

inline std::shared_ptr<buffer> copy_bytes(const void* from, int64_t offset, int64_t count) {
  auto made = buffer::create(count);
  if (count > 0) std::memcpy(made->data(), static_cast<const char*>(from) + offset, static_cast<size_t>(count));
  return made;
}

// Offsets are checked, because a wrong one would make an operator read other memory.
inline column copy_text(const std::string& name, const ArrowArray& array, int64_t first, int64_t rows, data_type type,
                        int64_t nulls, std::shared_ptr<buffer> validity) {
  auto offsets = buffer::create((rows + 1) * static_cast<int64_t>(sizeof(int32_t)));
  if (rows == 0) return {type, 0, 0, nullptr, offsets, buffer::create(0)};
  const char* source = static_cast<const char*>(array.buffers[1]) + first * static_cast<int64_t>(sizeof(int32_t));
  auto* to = offsets->as<int32_t>();
  std::memcpy(to, source, static_cast<size_t>(rows + 1) * sizeof(int32_t));  // the source may be unaligned
  int32_t begin = to[0];
  if (begin < 0) refuse(name, "has a negative offset");
  for (int64_t i = 0; i <= rows; i++) {
    if (i < rows && to[i + 1] < to[i]) refuse(name, "has offsets that decrease");
    to[i] -= begin;
  }
  if (to[rows] > 0 && !array.buffers[2]) refuse(name, "has no buffer for its text");
  return {type, rows, nulls, std::move(validity), offsets, copy_bytes(array.buffers[2], begin, to[rows])};
}

// Rows [first, first + rows) of a column, counted from the begin of its buffers.
inline column copy_column(const ArrowSchema& schema, const ArrowArray& array, int64_t first, int64_t rows) {
  std::string name = schema.name ? schema.name : "";
  if (schema.dictionary || array.dictionary) refuse(name, "is dictionary-encoded; decode it before");
  if (schema.n_children != 0 || array.n_children != 0) refuse(name, "is nested");
  data_type type = type_of_format(name, schema.format);
  bool is_text = type.id == type_id::utf8;
  if (array.n_buffers != (is_text ? 3 : 2)) refuse(name, "has a wrong number of buffers");
  if (rows > 0 && !array.buffers[1]) refuse(name, "has no buffer for its values");
  std::shared_ptr<buffer> validity;
  int64_t nulls = 0;
  if (array.null_count != 0 && array.buffers[0] && rows > 0) {
    validity = copy_bits(array.buffers[0], first, rows);
    nulls = rows - ones_in(*validity, rows);
  }
  if (is_text) return copy_text(name, array, first, rows, type, nulls, validity);
  if (type.id == type_id::boolean) return {type, rows, nulls, validity, copy_bits(array.buffers[1], first, rows)};
  auto width = static_cast<int64_t>(width_of(type.id));
  return {type, rows, nulls, validity, copy_bytes(array.buffers[1], first * width, rows * width)};
}

inline void check_lengths(const ArrowArray& array) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max() / 64;  // no number of bits or bytes overflows
  if (array.length < 0 || array.offset < 0 || array.length > kMax || array.offset > kMax)
    throw std::invalid_argument("farside: an Arrow array has an impossible length or offset");
}

}  // namespace arrow

// Both structures are overwritten; the caller, or who they are passed to, releases them.
inline void export_column(const std::string& name, const column& c, ArrowSchema* schema, ArrowArray* array) {
  auto type = std::make_unique<arrow::schema_data>();
  type->format = arrow::format_of(c.type());
  type->name = name;
  auto data = std::make_unique<arrow::array_data>();
  data->owned = {c.nulls() > 0 ? c.validity_buffer() : nullptr, c.values_buffer()};
  if (c.type().id == type_id::utf8) data->owned.push_back(c.text_buffer());
  for (const auto& b : data->owned) data->buffers.push_back(b ? b->data() : nullptr);
  arrow::fill(schema, std::move(type), ARROW_FLAG_NULLABLE);
  arrow::fill(array, std::move(data), c.rows(), c.nulls());
}

// Releases both structures, also when it throws.
inline column import_column(ArrowSchema* schema, ArrowArray* array) {
  arrow::imported<ArrowSchema> held_schema(schema);
  arrow::imported<ArrowArray> held_array(array);
  arrow::check_lengths(*array);
  return arrow::copy_column(*schema, *array, array->offset, array->length);
}

inline void export_record_batch(const std::vector<std::string>& names, const std::vector<column>& columns, int64_t rows,
                                ArrowSchema* schema, ArrowArray* array) {
  auto type = std::make_unique<arrow::schema_data>();
  type->format = "+s";
  auto data = std::make_unique<arrow::array_data>();
  data->buffers = {nullptr};  // no row is null
  for (size_t c = 0; c < columns.size(); c++)
    export_column(names[c], columns[c], type->children.add(), data->children.add());
  arrow::fill(schema, std::move(type), 0);
  arrow::fill(array, std::move(data), rows, 0);
}

// Calls add(name, column, rows) for each column.
template <typename Add>
void import_record_batch(ArrowSchema* schema, ArrowArray* array, Add add) {
  arrow::imported<ArrowSchema> held_schema(schema);
  arrow::imported<ArrowArray> held_array(array);
  if (std::string_view(schema->format) != "+s")
    throw std::invalid_argument("farside: the Arrow array is no record batch; import_column imports a single column");
  if (schema->n_children != array->n_children)
    throw std::invalid_argument("farside: the Arrow schema and array have different numbers of columns");
  arrow::check_lengths(*array);
  if (array->null_count != 0 && array->n_buffers > 0 && array->buffers[0] && array->length > 0) {
    auto validity = arrow::copy_bits(array->buffers[0], array->offset, array->length);
    if (arrow::ones_in(*validity, array->length) != array->length)
      throw std::invalid_argument("farside: the Arrow record batch has null rows");
  }
  for (int64_t c = 0; c < array->n_children; c++) {
    const ArrowSchema& type = *schema->children[c];
    const ArrowArray& data = *array->children[c];
    arrow::check_lengths(data);
    if (data.length < array->offset + array->length)
      throw std::invalid_argument("farside: an Arrow column is shorter than its record batch");
    add(type.name ? type.name : "", arrow::copy_column(type, data, data.offset + array->offset, array->length),
        array->length);
  }
}

}  // namespace farside::frame
#endif
