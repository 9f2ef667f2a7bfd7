-- All times are on the server's clock: seconds and microseconds, as text.
local time = redis.call('TIME')
local SECONDS, MICROS = time[1], string.sub('00000' .. time[2], -6)
