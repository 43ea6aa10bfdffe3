<?php
$list = [];
for ($i = 0; $i < 400000; $i++) $list["key " . ($i * 7919) % 1000003] = str_repeat(chr(97 + $i % 26), 50);
ksort($list);
echo count($list), " ", md5(implode(",", array_keys($list)) . implode("", $list)), "\n";
