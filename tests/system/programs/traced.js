// For test_trace.py: prints its process' id; most of its faults come from pick().
const COUNT = 200000;

function build() {
  const rows = [];
  for (let i = 0; i < COUNT; i++) rows.push({ key: i, text: "row " + i, value: i * 1.5 });
  return rows;
}
function pick(rows, order) {
  let total = 0;
  for (const i of order) total += rows[i].value;
  return total;
}

console.log(process.pid);
const rows = build(), order = [];
for (let i = 0, at = 1; i < COUNT; i++) {
  at = (at * 1103515245 + 12345) % 2147483648;
  order.push(at % COUNT);
}
console.log(pick(rows, order), pick(rows, order));
