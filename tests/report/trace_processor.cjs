// Runs Perfetto's trace processor, compiled to WebAssembly, outside a browser: requests in on standard input, replies out
// on standard output, both as its own protocol buffers.
//
// node trace_processor.cjs FOLDER: the folder of Perfetto's user interface that has engine_bundle.js, which expects to be
// a web worker: the few things that it asks of one are made here.
const fs = require("fs");
const path = require("path");

const folder = process.argv[2];
const worker = { location: { href: "http://localhost/" } };

class FileRequest {
  open(method, url) {
    this.name = path.basename(url);
  }
  send() {
    this.response = new Uint8Array(fs.readFileSync(path.join(folder, this.name))).buffer;
  }
}

const say = (...words) => fs.writeSync(2, `${words.join(" ")}\n`);
const log = { log: say, warn: say, error: say };
const bundle = fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8");
// Without "process" it does not see that this is Node, which it refuses.
new Function("self", "process", "WorkerGlobalScope", "XMLHttpRequest", "console", bundle)(
  worker, undefined, worker, FileRequest, log,
);

const port = {
  postMessage(reply) {
    for (let sent = 0; sent < reply.length; ) sent += fs.writeSync(1, reply, sent);
  },
};
worker.onmessage({ data: port });
// The module starts as soon as this script is through; only then can it answer.
setTimeout(() => port.onmessage({ data: new Uint8Array(fs.readFileSync(0)) }), 0);
