local list, index = {}, {}
for i = 1, 200000 do
  local entry = {key = (i * 7919) % 1000003, text = "entry " .. i}
  list[i] = entry
  index[entry.text] = entry
end
table.sort(list, function(a, b) return a.key < b.key end)
local sum = 0
for i, entry in ipairs(list) do sum = (sum * 31 + entry.key + #index[entry.text].text + i) % 1000000007 end
print(#list, list[12345].text, sum)
