// The class farside::data_frame. Its operators are defined in <farside/frame/data_frame_operators.hpp>; programs
// include <farside/frame/data_frame.hpp>, which has the semantics.
#ifndef FARSIDE_FRAME_DATA_FRAME_CLASS_HPP
#define FARSIDE_FRAME_DATA_FRAME_CLASS_HPP

#include <farside/frame/arrow.hpp>
#include <farside/frame/execute.hpp>

namespace farside {

class data_frame {
 public:
  using column = frame::column;
  using expression = frame::expression;
  using placement = frame::placement;
  using optional_expression = std::optional<expression>;

  // An aggregate and the name of its column. Without an expression: a count of rows.
  struct aggregate_of {
    std::string name;
    frame::aggregate_op op = frame::aggregate_op::count;
    optional_expression of = {};
  };
  struct key {
    std::string name;
    expression of;
    key(const char* column_name) : name(column_name), of(frame::col(name)) {}
    key(std::string key_name, expression value) : name(std::move(key_name)), of(std::move(value)) {}
  };
  enum class order { ascending, descending };

  size_t rows() const { return static_cast<size_t>(rows_); }
  size_t columns() const { return columns_.size(); }
  const std::vector<std::string>& names() const { return names_; }
  bool has(const std::string& name) const { return std::find(names_.begin(), names_.end(), name) != names_.end(); }
  const column& operator[](const std::string& name) const {
    auto at = std::find(names_.begin(), names_.end(), name);
    if (at == names_.end()) throw std::invalid_argument("farside: the data frame has no column " + name);
    return columns_[static_cast<size_t>(at - names_.begin())];
  }
  const column& operator[](size_t at) const { return columns_[at]; }

  // Appends a column.
  void add(std::string name, column values) {
    if (has(name)) throw std::invalid_argument("farside: the data frame already has a column " + name);
    if (!columns_.empty() && values.rows() != rows_)
      throw std::invalid_argument("farside: column " + name + " has another number of rows than the data frame");
    rows_ = values.rows();
    names_.push_back(std::move(name));
    columns_.push_back(std::move(values));
  }

  // ---- Project ----

  // These columns, in this order. Copies no data.
  data_frame select(const std::vector<std::string>& names) const {
    data_frame made;
    for (const std::string& name : names) made.add(name, (*this)[name]);
    return made;
  }
  // All columns and a computed one: float64; int64 of year() to weekday(); boolean of a condition. Reads the columns of
  // the expression, and writes the new one.
  data_frame with(std::string name, const expression& value, placement where = placement::automatic) const;

  // ---- Filter and copy ----

  // The rows for which the condition is true. Reads the condition's columns, then all columns where there are such
  // rows.
  data_frame filter(const expression& condition, placement where = placement::automatic) const;
  // The given rows, in the given order; a row may occur several times. std::out_of_range if one does not exist.
  data_frame take(const std::vector<int64_t>& rows, placement where = placement::automatic) const;
  data_frame take_rows(const column& rows, placement where = placement::automatic) const;  // int64, without nulls

  // ---- Aggregate ----

  // One row with a column for each aggregate.
  data_frame aggregate(const std::vector<aggregate_of>& what, const optional_expression& condition = {},
                       placement where = placement::automatic) const;
  // A row for each group, with its keys and aggregates. At most 64 keys. Near memory: about 16 bytes for each group and
  // key, and 48 for each group and aggregate.
  data_frame group_by(const std::vector<key>& keys, const std::vector<aggregate_of>& what,
                      const optional_expression& condition = {}, placement where = placement::automatic) const;

  // ---- Join, top k ----

  // Inner join with a small table: all columns of both but the small table's keys. A column name that both have is an
  // error. `small_on`: the names of its keys, if they are others. The small table's keys are kept in a table in near
  // memory, about 40 bytes a row.
  data_frame join(const data_frame& small, const std::vector<std::string>& on,
                  const std::vector<std::string>& small_on = {}, placement where = placement::automatic) const;
  // The k rows with the smallest or largest values, best first. Rows with equal values keep their order; rows where the
  // value is null are left out.
  data_frame top_k(size_t k, const expression& value, order by = order::descending,
                   const optional_expression& condition = {}, placement where = placement::automatic) const;

  // ---- Exchange with other tools: arrow.hpp ----

  // Moves the data frame into Arrow's structures, as a record batch. Copies no data: the buffers are freed when both
  // the data frame's columns and all that was exported have been released.
  void export_arrow(ArrowSchema* schema, ArrowArray* array) const;
  // Copies a record batch to far memory and releases the structures, also after an error. std::invalid_argument where a
  // column is nested, dictionary-encoded, or of a type that the data frame lacks, or where its offsets are damaged.
  static data_frame import_arrow(ArrowSchema* schema, ArrowArray* array);

 private:
  class builder;
  data_frame picked(const column& rows, placement where) const;

  int64_t rows_ = 0;
  std::vector<std::string> names_;
  std::vector<column> columns_;
};

}  // namespace farside

#endif
