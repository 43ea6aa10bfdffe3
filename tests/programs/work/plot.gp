set terminal pngcairo size 1600,1200
set samples 2000
set isosamples 150
set pm3d
splot sin(sqrt(x * x + y * y)) / sqrt(x * x + y * y + 0.1) title "one"
set dgrid3d 90,90 splines
splot '+' using ($1):(sin($1)):(cos($1 * 3)) every 20 with pm3d title "two"
