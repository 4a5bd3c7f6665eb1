// Arrays come as text (windermere/report/packing.py): base64 of deflated bytes.

async function inflated(text) {
  const raw = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Whole numbers whose differences along the first axis were stored, low bytes first and then all high bytes. */
function summed(bytes, shape, levels) {
  const count = bytes.length / 2;
  const row = count / shape[0];
  const whole = new Int16Array(count);
  for (let i = 0; i < count; i++) {
    whole[i] = (bytes[i] | (bytes[count + i] << 8)) + (i < row ? 0 : whole[i - row]);
  }
  return Float32Array.from(whole, (value) => value / levels);
}

async function decodeArray(packed) {
  const bytes = await inflated(packed.data);
  return packed.packed === "bytes" ? bytes : summed(bytes, packed.shape, packed.levels);
}

/** A scene with every array decoded; all else stays as it is. */
async function decodeScene(value) {
  if (Array.isArray(value)) return Promise.all(value.map(decodeScene));
  if (value === null || typeof value !== "object") return value;
  if (value.packed) return decodeArray(value);
  const names = Object.keys(value);
  const parts = await Promise.all(names.map((name) => decodeScene(value[name])));
  return Object.fromEntries(names.map((name, i) => [name, parts[i]]));
}
