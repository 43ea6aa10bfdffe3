use strict; use warnings;
use Digest::MD5 qw(md5_hex);
my %count;
$count{"word " . ($_ * 7919) % 400009} += $_ for 1 .. 150_000;
my @order = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
my $text = join("\n", map { "$_ $count{$_}" } @order);
(my $changed = $text) =~ s/(\d)(\d)/$2$1/g;
my $pid = fork() // die;
if (!$pid) { print md5_hex($text), "\n"; exit 0 }
waitpid($pid, 0);
print scalar(@order), " ", md5_hex($changed), " $order[12345]\n";
