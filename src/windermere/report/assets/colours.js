// Colours of the canvases, read from the style sheet, so that both schemes are told in one place.

function currentColours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  return {
    paper: read("--paper"), ink: read("--ink"), muted: read("--muted"), line: read("--line"), coarse: read("--coarse"),
    classes: Array.from({ length: 10 }, (_, i) => read(`--class-${i}`)),
    region: Number(read("--region-strength")), path: Number(read("--path-strength")),
  };
}

/** A hexadecimal colour as three numbers. */
const channels = (colour) => [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));

/** Classes of a grid, its first row at the bottom, as a picture in pale colours. */
function regionPicture(classes, colours) {
  const side = Math.round(Math.sqrt(classes.length));
  const picture = document.createElement("canvas");
  picture.width = picture.height = side;
  const context = picture.getContext("2d");
  const image = context.createImageData(side, side);
  const palette = colours.classes.map(channels);
  for (let row = 0; row < side; row++) {
    for (let column = 0; column < side; column++) {
      const colour = palette[classes[row * side + column] % 10];
      const at = 4 * ((side - 1 - row) * side + column);
      image.data.set([...colour, Math.round(255 * colours.region)], at);
    }
  }
  context.putImageData(image, 0, 0);
  return picture;
}

const SHAPES = 10;

/** Adds a mark to the current path: circle, triangle, square, diamond, ... so that classes differ without colour too. */
function addMark(context, kind, x, y, r) {
  if (kind % SHAPES === 0 || kind % SHAPES > 4) {
    context.moveTo(x + r, y);
    context.arc(x, y, r, 0, 2 * Math.PI);
    return;
  }
  const corners = { 1: [3, -0.25], 2: [4, 0.125], 3: [4, 0], 4: [3, 0.25] }[kind % SHAPES];
  for (let i = 0; i <= corners[0]; i++) {
    const angle = 2 * Math.PI * (corners[1] + i / corners[0]);
    const px = x + 1.25 * r * Math.cos(angle);
    const py = y + 1.25 * r * Math.sin(angle);
    if (i === 0) context.moveTo(px, py);
    else context.lineTo(px, py);
  }
}
