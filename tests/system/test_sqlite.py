"""sqlite3 creates a database of real text in memory, queries it and changes it."""
from support import MIB, SCALE, SHARES, SystemTest, expand, main, require, variations

SIZE = 10 * MIB
SCRIPT = """
pragma temp_store = memory;
create table lines(path text, number integer, line text);
.mode ascii
.separator "\\037" "\\036"
.import lines.txt lines
.mode list
select count(*), count(distinct path), sum(length(line)) from lines;
create index by_line on lines(line);
create index by_path on lines(path, number);
select length(line) as size, count(*) from lines group by size order by 2 desc, 1 limit 200;
select line, count(*) as times from lines group by line having times > 50 order by times desc, line limit 300;
select path, sum(length(line)), max(number) from lines group by path order by 2 desc, 1 limit 100;
select count(*) from lines where line like '%return%' or line glob '*#include*';
select a.path, count(*) from lines a join lines b on b.path = a.path and b.number = a.number + 1
  where a.line = b.line and a.line <> '' group by a.path order by 2 desc, 1 limit 50;
update lines set line = upper(line) where number % 3 = 0;
delete from lines where number % 7 = 0;
select count(*), sum(length(line)), min(line), max(line) from lines;
select path, number, line from lines order by line, path, number limit 2000 offset 50000;
vacuum;
pragma integrity_check;
"""


@expand
class SqliteTest(SystemTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        import real_text
        cls.sqlite = require("sqlite3")
        with open(cls.folder / "lines.txt", "wb") as file:
            for path, data in real_text.collect(int(SIZE * SCALE)):
                for number, line in enumerate(real_text.lines_of(data), 1):
                    file.write(b"%b\x1f%d\x1f%b\x1e" % (path.encode(), number, line.translate(None, b"\x1e\x1f")))
        cls.script = cls.folder / "script.sql"
        cls.script.write_text(SCRIPT)

    @variations(SHARES)
    def test_database_in_memory(self, variation):
        command = [self.sqlite, "-bail", ":memory:", f".read {self.script}"]
        expected = self.once("native", lambda: self.native(command))
        self.assertTrue(expected.output.rstrip().endswith(b"ok"), expected.output[-200:])
        self.same(variation, command, expected)


if __name__ == "__main__":
    main()
