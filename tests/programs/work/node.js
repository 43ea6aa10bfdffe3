const list = [];
for (let i = 0; i < 400000; i++) list.push({i, text: 'entry ' + (i * 7919) % 1000003});
list.sort((a, b) => a.text < b.text ? -1 : a.text > b.text ? 1 : 0);
const bytes = Buffer.alloc(30e6);
for (let i = 0; i < bytes.length; i += 4096) bytes[i] = i % 251;
console.log(list[12345].text, list.reduce((sum, e, at) => (sum * 31 + e.i * at) % 1e9, 7), bytes[4096 * 250]);
