# frozen_string_literal: true

# 13 bytes, as little as a Rack application can do.
HEADERS = { 'content-type' => 'text/plain', 'content-length' => '13' }.freeze
BODY = ['Hello, world!'].freeze

run ->(_env) { [200, HEADERS.dup, BODY] }
