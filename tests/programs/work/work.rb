list = (0...500_000).map { |i| "entry #{(i * 7919) % 1_000_003}" * 3 }
list.sort!
pid = fork { exit!(list.size == 500_000 && list[0] < list[-1] ? 0 : 1) }
Process.wait(pid)
puts list[12345], list.sum(&:size), $?.exitstatus
