-- The server's clock decides, for everybody. Seconds as a float, the unit of all scores; and the same as text.
local function server_now()
    local time = redis.call('TIME')
    local text = time[1] .. '.' .. string.sub('00000' .. time[2], -6)
    return tonumber(text), text
end
